"""Tensors of PyTorch as arrays of numpy in the same memory where possible, and results copied back into them."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fanin.workers.arguments import Array, flattened
from fanin.workers.job.calls import RefusedError

Tensors = Sequence[torch.Tensor]
Copies = list[tuple[Array, torch.Tensor]]


def arrays_of(tensors: Tensors) -> tuple[list[Array], Copies]:
    """Return an array for each tensor, in its own memory where possible, and a list of those that are copies."""
    arrays, copies = [], []
    for tensor in tensors:
        array = in_place(tensor)
        if array is None:
            array = numbers_of(tensor)
            copies.append((array, tensor))
        arrays.append(array)
    return arrays, copies


def in_place(tensor: torch.Tensor) -> Array | None:
    """Return the tensor's own memory, flat, if numpy can use it and it has no gaps; otherwise None."""
    tensor = _checked(tensor)
    if tensor.dtype == torch.bfloat16 or not tensor.is_cpu or not tensor.is_contiguous():
        return None
    return _memory(tensor).reshape(-1)


def numbers_of(tensor: torch.Tensor) -> Array:
    """Return the tensor's values as a flat array without gaps that numpy can calculate with."""
    tensor = _staged(_checked(tensor))
    return flattened(_memory(tensor.float() if tensor.dtype == torch.bfloat16 else tensor))


def bits_of(tensor: torch.Tensor) -> Array:
    """Return the tensor's own memory, or a copy of that of a device, to be passed on without looking at the values."""
    tensor = _staged(_checked(tensor))
    return _memory(tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor)


def _staged(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, or a copy of it in main memory, which its device can read and write directly if it is CUDA's.

    The copy is complete when this returns: the thread that sums it knows no streams.
    """
    if tensor.is_cpu:
        return tensor
    staged = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
    return staged.copy_(tensor)


def _memory(tensor: torch.Tensor) -> Array:
    """Return a tensor's memory as an array that keeps it alive.

    After Tensor.numpy(), PyTorch refuses to resize the tensor, which its batched PowerSGD does.
    """
    if tensor.is_neg() or tensor.is_conj():
        raise RefusedError(
            "a tensor with its negative or conjugate bit set has no values in memory: "
            "tensor.resolve_neg() or resolve_conj() makes one"
        )
    storage = tensor.untyped_storage()
    memory: Any = (ctypes.c_byte * storage.nbytes()).from_address(storage.data_ptr())
    memory.owner = tensor
    size = tensor.element_size()
    try:
        dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))
    except TypeError as error:
        raise RefusedError(
            f"numpy has no {tensor.dtype}: sum tensor.float(), or pass tensor.view(torch.uint8) on"
        ) from error
    array: Array = np.ndarray(
        tuple(tensor.shape),
        dtype,
        memory,
        tensor.storage_offset() * size,
        [stride * size for stride in tensor.stride()],
    )
    return array


def _checked(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_meta:
        raise RefusedError("a tensor on the device meta has no values: create it on the device cpu")
    if tensor.layout != torch.strided:
        raise RefusedError(
            f'the backend "fanin" takes dense tensors, not {tensor.layout}: convert it with tensor.to_dense()'
        )
    return tensor.detach() if tensor.requires_grad else tensor


def check_fit(larger: torch.Tensor, smaller: torch.Tensor, times: int = 1) -> None:
    """Raise RefusedError if one tensor has not so many times the elements of another, of the same type."""
    for each in (larger, smaller):
        _checked(each)
    if larger.dtype != smaller.dtype or larger.numel() != times * smaller.numel():
        raise RefusedError(
            f"tensors do not fit: {smaller.numel():,} elements of {smaller.dtype} "
            f"{f'from each of {times} ranks ' if times > 1 else ''}and {larger.numel():,} of {larger.dtype}"
        )


def put_back(copies: Copies) -> None:
    """Copy results back into tensors that could not be used in place."""
    for array, tensor in copies:
        round_into(array, tensor)


def round_into(array: Array, tensor: torch.Tensor) -> None:
    """Copy an array into a tensor of any type."""
    tensor.detach().copy_(torch.from_numpy(array).view(tensor.shape))


def place(array: Array, tensor: torch.Tensor) -> None:
    """Copy an array of bits_of() into a tensor of the same type."""
    if tensor.is_cpu:
        np.copyto(bits_of(tensor), array.reshape(tensor.shape), casting="no")
        return
    bits = torch.from_numpy(array)
    tensor.detach().copy_(
        (bits.view(tensor.dtype) if tensor.dtype == torch.bfloat16 else bits).view(tensor.shape)
    )


def place_all(arrays: Array, tensors: Tensors) -> None:
    """Copy arrays of bits_of() into tensors of the same types."""
    for array, tensor in zip(arrays, tensors, strict=True):
        place(array, tensor)


def flat(outputs: Sequence[Any]) -> list[torch.Tensor]:
    """Return the tensors of a list of tensors, or of lists of them."""
    return [tensor for each in outputs for tensor in (each if isinstance(each, list | tuple) else [each])]

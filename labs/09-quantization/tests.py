"""Tests of quantization."""

import math
from collections.abc import Sequence
from typing import Any

from fanin.classroom.bench import Bench, ExpectationError, lab_test

LIMIT = 1 << 31
SMALLEST = -126
Vectors = Sequence[Sequence[float]]


def _sum(bench: Bench, program: Any, vectors: Vectors) -> tuple[list[float], float]:
    """Sum vectors as workers and a switch do, and return the sum and the step between two neighbouring numbers."""
    workers = len(vectors)
    bench.step("each worker finds its exponent, and the switch the largest of them")
    e = max(program.call("exponent", [*vector]) for vector in vectors)
    largest = max(abs(value) for vector in vectors for value in vector)
    bench.check(largest < 2.0**e, f"the exponent {e} does not bound {largest:g}")
    bench.step(f"each of {workers} workers quantizes {len(vectors[0])} values with the exponent {e}")
    quantized = [program.call("quantize", [*vector], e, workers) for vector in vectors]
    for rank, numbers in enumerate(quantized):
        whole = all(type(number) is int and -LIMIT <= number < LIMIT for number in numbers)
        bench.check(whole, f"worker {rank}: {numbers[:4]} are not all integers of 32 bits")
    bench.step("the switch adds the integers, in 32 bits")
    sums = [sum(numbers) for numbers in zip(*quantized, strict=True)]
    for index, total in enumerate(sums):
        bench.check(
            -LIMIT <= total < LIMIT, f"the sum of element {index} overflows: {total} needs more than 32 bits"
        )
    bench.step("the workers dequantize the sums")
    return program.call("dequantize", sums, e, workers), 2.0 ** -program.call("shift", e, workers)


def _check(bench: Bench, program: Any, vectors: Vectors) -> None:
    found, step = _sum(bench, program, vectors)
    largest = max(abs(value) for vector in vectors for value in vector)
    bound = len(vectors) * step / 2
    allowed = max(largest, 2.0**SMALLEST) * len(vectors) ** 2 * 2.0**-28
    bench.check(bound <= allowed, f"the step is {step:g}: the integers use too few of their 32 bits")
    for index, values in enumerate(zip(*vectors, strict=True)):
        exact = math.fsum(values)
        bench.check(
            abs(found[index] - exact) <= bound * (1 + 1e-9),
            f"element {index}: the sum of {[*values]} is {exact:.9g}, the program has {found[index]:.9g}; "
            f"the error may be at most {bound:.3g}, half a step for each worker",
        )


@lab_test("The exponent is the smallest that bounds all values")
def exponents(bench: Bench) -> None:
    program = bench.python("quantization.py")
    cases: list[tuple[list[float], int]] = [
        ([0.75], 0), ([1.0], 1), ([-3.0, 0.1], 2), ([0.25, -0.1], -1), ([0.0, 0.0], SMALLEST), ([1e-45], SMALLEST)
    ]  # fmt: skip
    for values, expected in cases:
        bench.step(f"exponent({values})")
        found = program.call("exponent", values)
        bench.check(found == expected, f"it is {found}, expected {expected}")


@lab_test("The sum of two workers is right within half a step for each", points=2)
def two_workers(bench: Bench) -> None:
    program = bench.python("quantization.py")
    _check(bench, program, [[0.5, -0.25, 1.0, 1e-3], [0.125, 0.25, -3.0, 2e-3]])


@lab_test("Values are rounded to the nearest integer, negative ones too")
def rounds(bench: Bench) -> None:
    program = bench.python("quantization.py")
    step = 2.0 ** -program.call("shift", 0, 1)
    bench.step(f"a value is quantized whose integers are {step:g} apart")
    for multiple, expected in ((2.75, 3), (2.25, 2), (-2.75, -3), (-2.25, -2)):
        found = program.call("quantize", [multiple * step], 0, 1)
        bench.check(found == [expected], f"{multiple} steps become {found}, expected [{expected}]")


@lab_test("The sum never overflows, however many workers there are", points=2)
def no_overflow(bench: Bench) -> None:
    program = bench.python("quantization.py")
    for workers in (1, 2, 3, 5, 8, 33):
        bench.step(f"{workers} workers send the largest values below 1, and the same negative")
        largest = math.nextafter(1.0, 0.0)
        _check(bench, program, [[largest, -largest]] * workers)


@lab_test("Large and small values, and zeros")
def ranges(bench: Bench) -> None:
    program = bench.python("quantization.py")
    for scale in (1e30, 1e-30, 1e-37):
        _check(bench, program, [[scale, -2 * scale, 0.0], [scale / 3, scale, 0.0]])
    _check(bench, program, [[0.0, 0.0], [0.0, 0.0]])


@lab_test("Infinity and NaN are errors")
def no_number(bench: Bench) -> None:
    program = bench.python("quantization.py")
    for value in (math.nan, math.inf, -math.inf):
        bench.step(f"exponent([1.0, {value}])")
        try:
            found = program.call("exponent", [1.0, value])
        except ExpectationError as error:
            bench.check("ValueError" in error.problem.text, f"it raised another error: {error.problem.text}")
        else:
            bench.check(False, f"it is {found}, expected a ValueError")


@lab_test("Gradients drawn at random", points=2, hidden=True)
def random_gradients(bench: Bench) -> None:
    program = bench.python("quantization.py")
    for _ in range(15):
        workers, scale = bench.random.randrange(1, 20), 10.0 ** bench.random.randrange(-20, 20)
        vectors = [[bench.random.gauss(0, scale) for _ in range(16)] for _ in range(workers)]
        _check(bench, program, vectors)

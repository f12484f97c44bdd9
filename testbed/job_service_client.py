"""The requests of `fanin jobs`, `fanin top` and `fanin why` to the job service of a running network, over gRPC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import grpc

from fanin.controller.job_service import jobs_pb2 as pb
from fanin.controller.job_service.addresses import address_of
from fanin.controller.job_service.messages import document_of
from fanin.testbed.running import JOB_SERVICE_GRPC
from fanin.testbed.runs import Run
from fanin.topologies.errors import NetworkError

_ANSWER_SECONDS = 300.0  # the job service may wait for its controller, and that for switches


class JobServiceClient:
    """Client of the job service of the network of `run`. Answers are documents in the form of jobs.proto's messages.

    Raises:
        NetworkError: From each method: there is no service, it does not answer, or it refuses.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def list(self) -> list[dict[str, Any]]:
        """Return the jobs whose workers have all joined."""
        return [document_of(job) for job in self._call("List", pb.ListRequest(), pb.ListResponse).jobs]

    def revoke(self, job: str) -> None:
        """Take a job's lease, or its place in the queue, away."""
        self._call("Revoke", pb.RevokeRequest(job=job), pb.RevokeResponse)

    @contextmanager
    def absent(self, job: str, host: str) -> Iterator[None]:
        """Let a job with min_workers begin without the worker on `host`, which will not join, during a `with` block."""
        with self._answers(
            "Absent", pb.AbsentRequest(job=job, host=host), pb.AbsentResponse, None
        ) as answers:
            late = Timer(_ANSWER_SECONDS, answers.cancel)
            late.start()
            try:
                next(answers)
            finally:
                late.cancel()
            yield

    def look(self) -> dict[str, Any]:
        """Return the state of the whole network at one moment: Snapshot of testbed/monitoring/snapshot.py."""
        answer: dict[str, Any] = document_of(self._call("Look", pb.LookRequest(), pb.LookResponse))
        return answer

    def cells(self, job: str) -> dict[str, Any]:
        """Return the contents of the job's slots, by switch: Cells of testbed/monitoring/snapshot.py."""
        answer = self._call("Cells", pb.CellsRequest(job=job), pb.CellsResponse)
        return {switch: document_of(cells) for switch, cells in answer.switches.items()}

    def times(self, job: str) -> Sequence[Sequence[Mapping[str, Any]]]:
        """Return the times of the last calls of each worker, by rank: CallTime of controller/jobs/reports.py."""
        answer = self._call("Times", pb.TimesRequest(job=job), pb.TimesResponse)
        return [document_of(times)["calls"] for times in answer.workers]

    def _call(self, method: str, request: Any, response: Any) -> Any:
        with self._answers(method, request, response, _ANSWER_SECONDS) as answers:
            return next(answers)

    @contextmanager
    def _answers(self, method: str, request: Any, response: Any, timeout: float | None) -> Iterator[Any]:
        """Inside, a call lasts, for `timeout` seconds at most, whose answers come one after the other."""
        path, process = Path(self._run.folder, JOB_SERVICE_GRPC), self._run.supervisor
        if not path.exists():
            raise NetworkError(
                f"the network of process {process} has no job service; only networks of `fanin up` have one"
            )
        with (
            address_of(path) as address,
            grpc.insecure_channel(f"unix:{address}", [("grpc.max_receive_message_length", -1)]) as channel,
        ):
            call: grpc.UnaryStreamMultiCallable[Any, Any] = channel.unary_stream(
                f"/{pb.DESCRIPTOR.services_by_name['Jobs'].full_name}/{method}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=response.FromString,
            )
            answers = call(request, timeout=timeout)
            try:
                yield answers
            except grpc.RpcError as error:
                raise NetworkError(self._why(error)) from None
            finally:
                answers.cancel()

    def _why(self, error: Any) -> str:
        process = self._run.supervisor
        match error.code():
            case grpc.StatusCode.FAILED_PRECONDITION:
                return str(error.details())
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                return f"the job service of process {process} has not answered for {_ANSWER_SECONDS:g} s"
            case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
                return f"the network of process {process} has just ended ({error.details()})"
            case code:
                return f"the job service of process {process} cannot answer: {code.name}: {error.details()}"

"""The workload: which program is started, how, where and with which ranks."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from opguard.tools.protocol.models.base import ClosedModel, RankList, SystemPath, SystemText


def _variable_name(value: str) -> str:
    """Refuse a name that cannot stand in an environment.

    Raises:
        ValueError: The name is empty or holds ``=``.
    """
    if not value or "=" in value:
        raise ValueError("an environment variable's name must not be empty or hold '='")
    return value


VariableName = Annotated[SystemText, AfterValidator(_variable_name)]


class Workload(ClosedModel):
    """A training program and the way to start it.

    The process started is ``launcher + ["-m", "opguard.tools.worker", REQUEST, script, *args]``
    in ``cwd``, without a shell.

    Source:
        Protocol requirements B1, B2.
    """

    cwd: SystemPath = Field(
        description="The checkout: working directory of the workload, and the only folder whose "
        "source files can be instrumented. Symbolic links are resolved.",
        examples=["/home/me/model-a"],
    )
    launcher: Annotated[list[SystemText], Field(min_length=1)] = Field(
        description="Program and leading arguments that start a Python entry point, as an argument "
        "vector: an interpreter, or a launcher that takes `-m MODULE ARGS` as one does. A launcher "
        "of several ranks forwards the arguments to each and waits for all of them.",
        examples=[["python"], ["torchrun", "--nproc-per-node=2"]],
    )
    script: SystemPath = Field(
        description="The program to run as `__main__`: absolute, or relative to `cwd`.",
        examples=["train.py"],
    )
    args: list[SystemText] = Field(
        default=[],
        description="Command-line arguments of the script.",
        examples=[["--seed", "0"]],
    )
    env: dict[VariableName, SystemText] = Field(
        default={},
        description="Environment variables added to those of this program.",
        examples=[{"OMP_NUM_THREADS": "1"}],
    )
    ranks: RankList = Field(
        description="Exactly the global ranks that the launcher starts. A missing one and an "
        "additional one are both errors.",
        examples=[[0], [0, 1]],
    )

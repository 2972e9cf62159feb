from __future__ import annotations

from pathlib import Path

from opguard.tools.digests import sha256, sha256_file

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_digests_are_lower_case_hexadecimal_sha256(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")

    assert (sha256(b"abc"), sha256_file(tmp_path / "file")) == (ABC, ABC)

import json
import struct

import pytest
import torch

import xorsig
from opguard.core import _fallback, region_signatures, xor_signature, xor_signature_rows
from opguard.core.fingerprint import signature_bytes


def reference(data: bytes, regions: int) -> tuple[list[int], list[int]]:
    """Both schemes word by word, from the definition."""
    mask = 0xFFFFFFFF
    count = -(-len(data) // 4)
    words = struct.unpack(f"<{count}I", data.ljust(4 * count, b"\0"))
    base, longer = divmod(count, regions)
    plain, mixed, index = [], [], 0
    for region in range(regions):
        x = m = 0
        for _ in range(base + (region < longer)):
            word = words[index]
            key = ((index & mask) * 0x9E3779B1 + (index >> 32) * 0x85EBCA77) & mask
            v = word ^ key
            v = ((v ^ (v >> 15)) * 0x7FEB352D) & mask
            v = ((v ^ (v >> 15)) * 0x846CA68B) & mask
            x ^= word
            m ^= ((v ^ (v >> 15)) + key) & mask
            index += 1
        plain.append(x)
        mixed.append(m)
    return plain, mixed


def unsigned(values: torch.Tensor) -> list[int]:
    return [value & 0xFFFFFFFF for value in values.tolist()]


def tensor_of(data: bytes) -> torch.Tensor:
    return (
        torch.frombuffer(bytearray(data), dtype=torch.uint8)
        if data
        else torch.empty(0, dtype=torch.uint8)
    )


# Around the word and region boundaries of 1, 4 and 64 regions.
LENGTHS = [0, 1, 3, 4, 5, 8, 15, 16, 17, 63, 64, 255, 256, 257, 1021]


@pytest.mark.requirement("F10")
@pytest.mark.requirement("F13")
@pytest.mark.parametrize("nbytes", LENGTHS)
@pytest.mark.parametrize("regions", [1, 3, 4, 64])
def test_fallback_and_native_follow_the_definition(nbytes: int, regions: int) -> None:
    data = bytes((i * 57 + 11) % 251 for i in range(nbytes))
    tensor = tensor_of(data)
    plain, mixed = reference(data, regions)
    assert unsigned(_fallback.region_xor(tensor, regions)) == plain
    assert unsigned(_fallback.region_mix(tensor, regions)) == mixed
    assert list(xorsig.region_xor(data, regions)) == plain
    assert list(xorsig.region_mix(data, regions)) == mixed
    assert signature_bytes(tensor, regions) == struct.pack(f"<{2 * regions}I", *plain, *mixed)


@pytest.mark.requirement("F3")
@pytest.mark.requirement("F4")
@pytest.mark.requirement("F10")
def test_fallback_reproduces_every_golden_vector(shared_root) -> None:
    vectors = json.loads((shared_root / "data" / "fingerprint-vectors.json").read_text())
    for case in vectors["vectors"]:
        data = bytes((i * case["mul"] + case["add"]) % 251 for i in range(case["nbytes"]))
        assert unsigned(_fallback.region_xor(tensor_of(data), case["regions"])) == case["xor"]
        assert unsigned(region_signatures(tensor_of(data), case["regions"])) == case["xor"]


@pytest.mark.requirement("F1")
@pytest.mark.requirement("F8")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_strides_and_storage_offset_do_not_change_the_signature(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    base = torch.randint(0, 2, (6, 10, 4)).to(dtype)
    for view in (base[1:, ::3], base.transpose(0, 2), base[:, :1].expand(6, 7, 4), base[2, 3, 1]):
        assert torch.equal(region_signatures(view), region_signatures(view.contiguous()))
        assert region_signatures(view).tolist() == _fallback.region_xor(view, 4).tolist()


@pytest.mark.requirement("F1")
def test_conjugate_and_negative_views_have_the_signature_of_their_values() -> None:
    values = torch.tensor([1 + 2j, -3 - 4j])
    assert torch.equal(region_signatures(values.conj()), region_signatures(values.conj().clone()))
    imaginary = values.conj().imag
    assert imaginary.is_neg()
    assert torch.equal(region_signatures(imaginary), region_signatures(imaginary.clone()))
    assert not torch.equal(region_signatures(values.conj()), region_signatures(values))


@pytest.mark.requirement("F6")
def test_scalar_signature_is_the_xor_of_all_words_whatever_the_environment(monkeypatch) -> None:
    tensor = torch.arange(10, dtype=torch.int32)
    monkeypatch.setenv("OPGUARD_XOR_REGIONAL", "64")
    assert xor_signature(tensor) == 0 ^ 1 ^ 2 ^ 3 ^ 4 ^ 5 ^ 6 ^ 7 ^ 8 ^ 9
    assert xor_signature(-torch.ones(1, dtype=torch.int32)) == 0xFFFFFFFF


@pytest.mark.requirement("F6")
def test_row_signatures_pad_every_row_on_its_own() -> None:
    rows = torch.tensor([[1, 2, 3, 4, 5], [9, 9, 9, 9, 9]], dtype=torch.uint8)
    expected = [0x04030201 ^ 5, 0x09090909 ^ 9]
    assert xor_signature_rows(rows).tolist() == expected
    assert xor_signature_rows(rows).dtype is torch.int64
    assert xor_signature_rows(torch.tensor(7)).tolist() == [7]
    assert xor_signature_rows(torch.empty(3, 0)).tolist() == [0, 0, 0]


@pytest.mark.requirement("F14")
@pytest.mark.parametrize("regions", [0, 65, -1])
def test_region_count_out_of_range_is_refused(regions: int) -> None:
    with pytest.raises(ValueError, match="between 1 and 64"):
        region_signatures(torch.ones(3), regions)


@pytest.mark.requirement("F12")
def test_tensor_without_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="meta device"):
        region_signatures(torch.empty(3, device="meta"))


@pytest.mark.requirement("F12")
def test_tensor_whose_storage_was_freed_or_shrunk_is_refused() -> None:
    for nbytes in (0, 16):
        tensor = torch.ones(8)
        tensor.untyped_storage().resize_(nbytes)
        for function in (region_signatures, xor_signature, xor_signature_rows):
            with pytest.raises(ValueError, match="storage is freed"):
                function(tensor)

"""What the compiler made of the kernels, for every architecture of the library."""

import opguard_cuda_build
import opguard_cuda_figures
import opguard_cuda_sass as sass
import pytest

KERNELS = {
    "opguard_join",
    *(f"opguard_{scheme}{shift}" for scheme in ("plain", "both") for shift in ("", "_shifted")),
    *("opguard_float64", "opguard_float32"),
    *(
        f"opguard_{element}{shift}"
        for element in ("float16", "bfloat16", "float8_e5m2", "float8_e4m3fn")
        for shift in ("", "_shifted")
    ),
}
FINGERPRINTS = sorted(KERNELS - {"opguard_join"})
# Those whose speed matters: statistics are asked for seldom.
PACED = [name for name in FINGERPRINTS if "float" not in name]
UNROLL = 4


@pytest.fixture(params=opguard_cuda_build.ARCHITECTURES)
def architecture(request) -> str:
    return request.param


def test_library_holds_machine_code_for_every_target_and_portable_code(built):
    assert sorted(sass.embedded(built)) == sorted(
        [
            *(f"sm_{name}" for name in opguard_cuda_build.ARCHITECTURES),
            f"ptx sm_{opguard_cuda_build.PORTABLE}",
        ]
    )


def test_no_kernel_spills_or_has_local_memory(built, architecture):
    resources = sass.resources(built, architecture)
    assert resources.keys() == KERNELS
    for name, used in resources.items():
        assert (used.stack_bytes, used.local_bytes) == (0, 0), name
    for name, instructions in sass.kernels(built, architecture).items():
        found = {i.name for i in instructions if i.name.startswith(("LDL", "STL"))}
        assert found == set(), name


def test_fingerprints_leave_room_for_a_full_processor(built, architecture):
    # Of 65,536 registers, 1,536 threads of a processor (the least that a target has) may take 42.
    for name in PACED:
        assert sass.resources(built, architecture)[name].registers <= 40, name


def test_main_loop_issues_all_its_16_byte_loads_before_it_uses_the_first(built, architecture):
    kernels = sass.kernels(built, architecture)
    issued = {name: sass.loads_before_use(sass.main_loop(kernels[name])) for name in PACED}
    assert issued == dict.fromkeys(PACED, UNROLL)


def test_main_loop_reads_only_vectors(built, architecture):
    for name, instructions in sass.kernels(built, architecture).items():
        if name in FINGERPRINTS:
            body = sass.main_loop(instructions)
            loads = [i for i in body if i.name.startswith("LD") and not i.name.startswith("LDC")]
            others = [i for i in loads if i not in sass.vector_loads(body)]
            if name.endswith("_shifted"):
                # The last lane of a warp reads the first word of the vector after its own.
                assert len(others) == len(sass.vector_loads(body)), name
                assert all(i.predicate for i in others), name
            else:
                assert others == [], name
            assert all(".CONSTANT" in i.name for i in sass.vector_loads(body)), name


def test_partial_values_are_reduced_by_one_instruction_per_warp(built, architecture):
    for name, instructions in sass.kernels(built, architecture).items():
        if name in PACED:
            assert any(i.name == "REDUX.XOR" for i in instructions), name


def test_documentation_shows_the_figures_of_this_build(built):
    page = opguard_cuda_figures.PAGE.read_text()
    assert opguard_cuda_figures.page_with(built, page) == page

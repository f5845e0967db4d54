"""LDS and global memory, values by hand, and every bounds violation with its place.

Source: "Vector Memory Operations", "Flat Memory Instructions" and "Data Share Operations" of "AMD Instinct
MI300 Instruction Set Architecture".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np
import pytest

from aiter_conformance.isa.machine import Buffer, FaultKind, KernelFaultError, Workgroup

Run = Callable[..., Workgroup]
LANE = np.arange(64)
WORDS = np.arange(1000, 1256, dtype=np.uint32)


def _run_buffer(
    run: Run, *texts: str, records: int = 1024, writable: bool = False, **keywords: object
) -> Workgroup:
    """Run with s[4:7] describing the first ``records`` bytes of a buffer of 1024."""
    lines = ("s_mov_b64 s[4:5], s[90:91]", f"s_mov_b32 s6, {records}", *texts)
    return run(*lines, buffers=[Buffer("data", WORDS, writable)], **keywords)


class TestLds:
    """ds_read and ds_write."""

    def test_round_trip(self, run: Run) -> None:
        """Data comes back from where it went: offset included, other bytes untouched."""
        lines = (
            "ds_write_b128 v1, v[4:7]",
            "ds_write_b8 v2, v3 offset:1",
            "ds_read_b64 v[8:9], v1 offset:8",
            "ds_read_b32 v10, v1",
            "ds_read_u8 v11, v2 offset:1",
        )
        vector = {1: LANE * 16, 2: LANE * 16, 3: 0x1AB, 4: 0x01020304, 5: 5, 6: 6, 7: LANE}
        group = run(*lines, lds=1024, vector=vector)
        assert group.vector[0, 8].tolist() == [6] * 64
        assert group.vector[0, 9].tolist() == LANE.tolist()
        assert group.vector[0, 10].tolist() == [0x0102AB04] * 64
        assert group.vector[0, 11].tolist() == [0xAB] * 64

    @pytest.mark.parametrize("active", [(1 << 64) - 1, 3])
    @pytest.mark.parametrize("first", [0, 1])
    def test_over_its_addresses(self, run: Run, first: int, active: int) -> None:
        """A destination may hold the addresses: they are read before it is written."""
        lines = ("ds_write_b64 v3, v[4:5]", f"ds_read_b64 v[{1 - first}:{2 - first}], v1")
        vector = {1: LANE * 8, 3: LANE * 8, 4: LANE + 100, 5: LANE + 200}
        group = run(*lines, lds=512, vector=vector, active=active)
        assert group.vector[0, 1 - first, :2].tolist() == [100, 101]
        assert group.vector[0, 2 - first, :2].tolist() == [200, 201]

    def test_inactive_lanes(self, run: Run) -> None:
        """Lanes that are off neither read nor write, and may hold any address."""
        lines = ("ds_write_b16 v1, v2", "ds_read_b32 v3, v1")
        address = np.where(LANE < 2, LANE * 4, 0xFFFFFFF0)
        group = run(*lines, lds=16, vector={1: address, 2: 0x12345, 3: 7}, active=3)
        assert group.lds.view(np.uint32).tolist() == [0x2345, 0x2345, 0, 0]
        assert group.vector[0, 3].tolist() == [0x2345, 0x2345] + [7] * 62

    @pytest.mark.parametrize("text", ["ds_read_b64 v[8:9], v1", "ds_write_b64 v1, v[8:9]"])
    def test_bounds(self, run: Run, text: str) -> None:
        """An access past the allocation is a fault that names pc, instruction, wave, lane and address."""
        with pytest.raises(KernelFaultError) as caught:
            run("s_nop 0", text, lds=256, vector={1: LANE * 8})
        fault = caught.value
        assert (fault.kind, fault.pc, fault.text, fault.lane, fault.address) == (
            FaultKind.LDS_BOUNDS,
            4,
            text,
            32,
            256,
        )
        assert "wave 0, lane 32; LDS has 256 bytes" in str(fault)

    def test_alignment(self, run: Run) -> None:
        """A dword must be aligned; a pair of dwords only to a dword."""
        assert run("ds_read_b64 v[8:9], v1", lds=64, vector={1: 4}).vector[0, 8, 0] == 0
        with pytest.raises(KernelFaultError, match="must be aligned"):
            run("ds_read_b32 v8, v1", lds=64, vector={1: 2})

    def test_permute(self, run: Run) -> None:
        """ds_bpermute takes data from the lane address / 4, 0 from one that is off."""
        group = run(
            "ds_bpermute_b32 v9, v1, v2",
            vector={1: (63 - LANE) * 4, 2: LANE + 1, 9: 5},
            active=0xFFFFFFFFFFFFFFFE,
        )
        assert group.vector[0, 9].tolist() == [5] + [64 - lane for lane in range(1, 63)] + [0]


class TestBuffer:
    """Loads and stores through descriptors."""

    def test_load(self, run: Run) -> None:
        """Address = base + scalar offset + vector offset + instruction offset."""
        text = "buffer_load_dwordx2 v[8:9], v1, s[4:7], s20 offen offset:4"
        group = _run_buffer(run, text, vector={1: LANE * 8}, scalar={20: 16})
        assert group.vector[0, 8].tolist() == (1005 + 2 * LANE).tolist()
        assert group.vector[0, 9].tolist() == (1006 + 2 * LANE).tolist()

    @pytest.mark.parametrize("active", [(1 << 64) - 1, 3])
    @pytest.mark.parametrize("first", [0, 1])
    def test_over_its_addresses(self, run: Run, first: int, active: int) -> None:
        """A destination may hold the addresses: they are read before it is written."""
        text = f"buffer_load_dwordx2 v[{1 - first}:{2 - first}], v1, s[4:7], 0 offen"
        group = _run_buffer(run, text, vector={1: LANE * 8}, active=active)
        assert group.vector[0, 1 - first, :2].tolist() == [1000, 1002]
        assert group.vector[0, 2 - first, :2].tolist() == [1001, 1003]

    def test_one_lane_outside(self, run: Run) -> None:
        """One lane of 64 beyond num_records reads 0; one beyond the allocation is a fault that names it."""
        text = "buffer_load_dword v8, v1, s[4:7], 0 offen"
        offsets = np.where(LANE == 40, 1024, LANE * 4)
        group = _run_buffer(run, text, vector={1: offsets})
        assert group.vector[0, 8].tolist() == np.where(LANE == 40, 0, 1000 + LANE).tolist()
        with pytest.raises(KernelFaultError, match="lane 40; nearest allocation 'data' has 1024 bytes"):
            _run_buffer(run, text, records=4096, vector={1: offsets})

    def test_records(self, run: Run) -> None:
        """Each dword beyond num_records reads 0, the others do not."""
        group = _run_buffer(
            run, "buffer_load_dwordx4 v[8:11], v1, s[4:7], 0 offen", records=24, vector={1: 16}
        )
        assert group.vector[0, 8:12, 0].tolist() == [1004, 1005, 0, 0]

    def test_records_with_offset(self, run: Run) -> None:
        """The scalar offset counts against num_records."""
        text = "buffer_load_dword v8, v1, s[4:7], s20 offen"
        group = _run_buffer(run, text, records=24, vector={1: LANE % 3 * 4}, scalar={20: 16})
        assert group.vector[0, 8, :3].tolist() == [1004, 1005, 0]

    def test_unaligned(self, run: Run) -> None:
        """A load takes the bytes from where it says; a dword that is partly beyond num_records reads 0."""
        text = "buffer_load_dwordx2 v[8:9], v1, s[4:7], 0 offen"
        group = _run_buffer(run, text, records=13, vector={1: LANE % 4 + 4})
        data = WORDS.tobytes()
        low = [int.from_bytes(data[at : at + 4], "little") for at in range(4, 8)]
        high = [int.from_bytes(data[at : at + 4], "little") for at in (8, 9)]
        assert group.vector[0, 8, :4].tolist() == low
        assert group.vector[0, 9, :4].tolist() == [*high, 0, 0]
        # Offsets 6 and 7 of four have 3 and 2 bytes of their second dword inside.
        assert group.memory.over_reads[:, 2].tolist() == [0, 0, 32, 0]

    @pytest.mark.parametrize(
        "text",
        [
            "buffer_store_dword v8, v1, s[4:7], 0 offen",
            "buffer_load_dword v1, s[4:7], 0 offen lds",
        ],
    )
    def test_unaligned_store(self, run: Run, text: str) -> None:
        """Stores and loads to LDS must be aligned: no kernel that runs here does otherwise."""
        with pytest.raises(KernelFaultError, match="must be aligned to a dword"):
            _run_buffer(run, "s_mov_b32 m0, 0", text, writable=True, lds=256, vector={1: LANE * 4 + 1})

    def test_store(self, run: Run) -> None:
        """A store beyond num_records is dropped dword by dword."""
        text = "buffer_store_dwordx4 v[8:11], v1, s[4:7], 0 offen"
        vector = {1: 4, 8: 1, 9: 2, 10: 3, 11: 4}
        group = _run_buffer(run, text, records=12, writable=True, vector=vector, active=1)
        assert group.memory.contents("data")[:5].tolist() == [1000, 1, 2, 1003, 1004]

    def test_to_lds(self, run: Run) -> None:
        """A load to LDS goes to M0 + offset + 4 * lane; lanes out of range write 0, lanes off nothing."""
        lines = ("s_mov_b32 m0, 8", "buffer_load_dword v1, s[4:7], 0 offen offset:4 lds")
        group = _run_buffer(run, *lines, records=16, lds=512, vector={1: LANE * 4}, active=0x1F)
        words = group.lds.view(np.uint32)
        assert words[:9].tolist() == [0, 0, 0, 1001, 1002, 1003, 0, 0, 0]

    def test_to_lds_wide(self, run: Run) -> None:
        """Four dwords a lane go to 16 bytes a lane."""
        lines = ("s_mov_b32 m0, 0", "buffer_load_dwordx4 v1, s[4:7], 0 offen lds")
        group = _run_buffer(run, *lines, lds=1024, vector={1: LANE * 16})
        assert group.lds.view(np.uint32).tolist() == WORDS.tolist()

    def test_swizzle(self, run: Run) -> None:
        """A descriptor that is not linear is a fault, not a wrong address."""
        lines = ("s_or_b32 s5, s5, 0x80000000", "buffer_load_dword v8, v1, s[4:7], 0 offen")
        with pytest.raises(KernelFaultError, match="must be linear"):
            _run_buffer(run, *lines)


class TestGlobal:
    """Loads, stores and atomics by address."""

    def test_load_and_store(self, run: Run) -> None:
        """Address = scalar pair + unsigned vector offset + signed instruction offset."""
        lines = (
            "global_load_dwordx4 v[8:11], v1, s[90:91] offset:-16",
            "global_load_dwordx2 v[12:13], v1, s[90:91] sc0 sc1",
            "global_load_dword v14, v1, s[90:91]",
            "global_store_dwordx2 v1, v[8:9], s[90:91] offset:8",
        )
        group = run(*lines, buffers=[Buffer("data", WORDS, writable=True)], vector={1: 16}, active=1)
        assert group.vector[0, 8:15, 0].tolist() == [1000, 1001, 1002, 1003, 1004, 1005, 1004]
        assert group.memory.contents("data")[4:9].tolist() == [1004, 1005, 1000, 1001, 1008]

    def test_add_f32(self, run: Run) -> None:
        """Lanes add one after another, in float32: 2^24 takes no single 1."""
        data = np.array([2.0**24, 0.0], np.float32)
        group = run(
            "global_atomic_add_f32 v1, v2, s[90:91]",
            buffers=[Buffer("data", data, writable=True)],
            vector={1: LANE % 2 * 4, 2: np.full(64, 1.0)},
        )
        assert group.memory.contents("data").tolist() == [2.0**24, 32.0]

    @pytest.mark.parametrize(("name", "dtype"), [("bf16", ml_dtypes.bfloat16), ("f16", np.float16)])
    def test_packed_add(self, run: Run, name: str, dtype: type) -> None:
        """Both halves add and round to nearest even: in either format 2048 + 1 is a tie or less."""
        data = np.array([1.5, 2048.0, 0, 0], dtype)
        operand = int(np.array([0.25, 1.0], dtype).view(np.uint32)[0])
        group = run(
            f"global_atomic_pk_add_{name} v1, v2, s[90:91]",
            buffers=[Buffer("data", data, writable=True)],
            vector={1: 0, 2: operand},
            active=1,
        )
        assert group.memory.contents("data").astype(float).tolist() == [1.75, 2048.0, 0.0, 0.0]

    def test_compare_swap(self, run: Run) -> None:
        """Only the first lane finds the expected pair; each gets what it found."""
        group = run(
            "global_atomic_cmpswap_x2 v[8:9], v1, v[2:5], s[90:91] sc0",
            buffers=[Buffer("data", np.array([1, 2], np.uint32), writable=True)],
            vector={1: 0, 2: LANE + 7, 3: 8, 4: 1, 5: 2},
            active=0b110,
        )
        assert group.memory.contents("data").tolist() == [8, 8]
        assert group.vector[0, 8, :4].tolist() == [0, 1, 8, 0]
        assert group.vector[0, 9, :4].tolist() == [0, 2, 8, 0]


# instruction; lane's byte offsets; kind; lane; words of the message
FAULTS = [
    ("global_load_dword v8, v1, s[90:91]", LANE * 20, FaultKind.GLOBAL_BOUNDS, 52, "this is byte 1040"),
    (
        "global_load_dwordx2 v[8:9], v1, s[90:91]",
        LANE * 0 + 1020,
        FaultKind.GLOBAL_BOUNDS,
        0,
        "'data' has 1024",
    ),
    (
        "global_atomic_add_f32 v1, v2, s[90:91]",
        LANE * 4,
        FaultKind.GLOBAL_READ_ONLY,
        0,
        "must go to an output",
    ),
    (
        "global_store_dwordx2 v1, v[2:3], s[90:91]",
        LANE + 3,
        FaultKind.GLOBAL_ALIGNMENT,
        0,
        "aligned to a dword",
    ),
    ("global_atomic_add_f32 v1, v2, s[90:91]", LANE + 2, FaultKind.GLOBAL_ALIGNMENT, 0, "aligned to a dword"),
    ("global_load_dword v8, v1, s[90:91] offset:-4", LANE * 4, FaultKind.GLOBAL_BOUNDS, 0, "this is byte -4"),
]


def test_unaligned_load(run: Run) -> None:
    """A load by address takes the bytes from where it says, over the edge of a dword."""
    group = run("global_load_dword v8, v1, s[90:91]", buffers=[Buffer("data", WORDS)], vector={1: LANE * 3})
    data = WORDS.tobytes()
    assert group.vector[0, 8].tolist() == [
        int.from_bytes(data[i : i + 4], "little") for i in range(0, 192, 3)
    ]


class TestFaults:
    """Bounds of global memory."""

    @pytest.mark.parametrize(("text", "offsets", "kind", "lane", "words"), FAULTS)
    def test_place(
        self, run: Run, text: str, offsets: np.ndarray, kind: FaultKind, lane: int, words: str
    ) -> None:
        """The message names kind, pc, instruction, wave, lane, address and the nearest allocation."""
        with pytest.raises(KernelFaultError) as caught:
            run("s_nop 0", text, buffers=[Buffer("data", WORDS)], vector={1: offsets})
        fault = caught.value
        assert (fault.kind, fault.pc, fault.text, fault.wave, fault.lane) == (kind, 4, text, 0, lane)
        assert words in str(fault)
        assert f"got address {fault.address:#x} at pc 0x4 '{text}', work-group (0, 0, 0), wave 0" in str(
            fault
        )

    def test_through_descriptor(self, run: Run) -> None:
        """A descriptor that promises more than was allocated does not hide an access outside."""
        text = "buffer_load_dword v8, v1, s[4:7], 0 offen"
        with pytest.raises(KernelFaultError, match="this is byte 1024 of it"):
            _run_buffer(run, text, records=4096, vector={1: LANE * 4 + 1000})

    def test_neighbour(self, run: Run) -> None:
        """An access that leaves one allocation is not saved by the next one: there is a guard between."""
        both: Sequence[Buffer] = [Buffer("first", WORDS), Buffer("second", WORDS)]
        with pytest.raises(KernelFaultError, match="nearest allocation 'first'"):
            run("global_load_dword v8, v1, s[90:91]", buffers=both, vector={1: 1024})

    @pytest.mark.parametrize(
        ("base", "words"),
        [(0, "no allocation near: an argument that was not given"), (1 << 40, r"no allocation near\)")],
    )
    def test_far_away(self, run: Run, base: int, words: str) -> None:
        """An address far from all allocations is not blamed on one; near 0 an argument is missing."""
        scalar = {90: base & 0xFFFFFFFF, 91: base >> 32}
        with pytest.raises(KernelFaultError, match=words):
            run("global_load_dword v8, v1, s[90:91]", scalar=scalar, vector={1: 64})

    def test_slack(self, run: Run) -> None:
        """With slack a read past the end gives 0 and is counted, with its distance; a store is a fault."""
        text = "global_load_dwordx2 v[8:9], v1, s[90:91]"
        data = [Buffer("data", WORDS, writable=True)]
        group = run(text, buffers=data, vector={1: LANE * 0 + 1020}, active=7, slack=8)
        assert group.vector[0, 8:10, 0].tolist() == [1255, 0]
        assert group.memory.over_reads.tolist() == [[3, 4, 0], [0, 0, 0]]
        with pytest.raises(KernelFaultError, match="must stay inside"):
            run("global_store_dwordx2 v1, v[8:9], s[90:91]", buffers=data, vector={1: 1020}, slack=8)

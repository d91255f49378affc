"""Checkpoints of divided tensors: whole on loading, whatever the devices, and an earlier one survives a failure."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from monolect import ArgumentError, FileFormatError, Mesh, Tensor, nn
from monolect.interop import checkpoint
from monolect.interop.checkpoint import INDEX, load_checkpoint, save_checkpoint

FOUR = ("cpu", "cpu:1", "cpu:2", "cpu:3")
VALUES = np.arange(30.0).reshape(5, 6)


def tensors() -> dict[str, Tensor]:
    return {
        "rows": Tensor(VALUES).shard(FOUR),
        "columns": Tensor(VALUES).shard(FOUR[:2], 1),
        "blocks": Tensor(VALUES).shard(Mesh(("a", "b"), (2, 2), FOUR), {"a": 1, "b": 0}),
        "rows, twice": Tensor(VALUES).shard(Mesh(("a", "b"), (2, 2), FOUR), {"b": 0}),
        "whole": Tensor(VALUES).replicate(FOUR),
        "one": Tensor([1, 2, 3]),
        "scalar": Tensor(2.5),
    }


def test_every_placement_comes_back(tmp_path: Path) -> None:
    save_checkpoint(tensors(), tmp_path / "new")
    found = load_checkpoint(tmp_path / "new")
    assert set(found) == set(tensors())
    for name, t in tensors().items():
        assert found[name].dtype is t.dtype
        np.testing.assert_array_equal(found[name].numpy(), t.numpy())


def test_a_model_is_loaded_on_another_number_of_devices(tmp_path: Path) -> None:
    def model(n: int) -> nn.Linear:
        made = nn.Linear(6, 8)
        if n > 1:
            nn.parallel.shard(made, FOUR[:n])
        return made

    saved = model(4)
    save_checkpoint(nn.state.get_state_dict(saved), tmp_path)
    for n in (1, 2, 4):
        other = model(n)
        nn.state.load_state_dict(other, load_checkpoint(tmp_path))
        np.testing.assert_array_equal(other.weight.numpy(), saved.weight.numpy())
        assert other.weight.shard_axis == (None if n == 1 else 0)


def test_a_second_save_replaces_the_first_and_leaves_no_old_file(tmp_path: Path) -> None:
    save_checkpoint(tensors(), tmp_path)
    save_checkpoint({"rows": Tensor(VALUES + 1).shard(FOUR)}, tmp_path)
    assert list(load_checkpoint(tmp_path)) == ["rows"]
    np.testing.assert_array_equal(load_checkpoint(tmp_path)["rows"].numpy(), VALUES + 1)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_save_that_fails_leaves_the_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tensors(), tmp_path)

    def fails(*args: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(checkpoint, "write_whole", fails)
    with pytest.raises(OSError, match="disk full"):
        save_checkpoint({"rows": Tensor(VALUES * 2)}, tmp_path)
    np.testing.assert_array_equal(load_checkpoint(tmp_path)["rows"].numpy(), VALUES)


def test_bad_checkpoints_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="save_checkpoint: w"):
        save_checkpoint({"w": 3}, tmp_path)  # type: ignore[dict-item]
    with pytest.raises(ArgumentError, match="save_checkpoint: names"):
        save_checkpoint({"w": Tensor.ones(2).shard(("cpu", "cpu:1")), "w/part-2-of-2": Tensor.ones(1)}, tmp_path)
    with pytest.raises(FileNotFoundError):
        load_checkpoint(tmp_path / "nothing")
    save_checkpoint(tensors(), tmp_path)
    index = json.loads((tmp_path / INDEX).read_text())
    (file,) = tmp_path.glob("model-*-of-*")

    def refused(changed: object, match: str) -> None:
        (tmp_path / INDEX).write_text(changed if isinstance(changed, str) else json.dumps(changed))
        with pytest.raises(FileFormatError, match=match):
            load_checkpoint(tmp_path)

    refused("{", "cannot be read")
    refused([], "cannot be read")
    refused({**index, "weight_map": {"one": "../" + file.name}}, "a part of the checkpoint is missing")
    refused({**index, "weight_map": {**index["weight_map"], "more": file.name}}, "a tensor is missing")
    parts = {**index["parts"], "rows": {**index["parts"]["rows"], "shape": [6, 6]}}
    refused({**index, "parts": parts}, "do not fit")
    parts = {**index["parts"], "rows": {**index["parts"]["rows"], "keys": index["parts"]["rows"]["keys"][1:]}}
    refused({**index, "parts": parts}, "do not fit")
    offsets = [*index["parts"]["rows"]["offsets"][:-1], []]
    refused(
        {**index, "parts": {**index["parts"], "rows": {**index["parts"]["rows"], "offsets": offsets}}}, "do not fit"
    )
    (tmp_path / INDEX).write_text(json.dumps(index))
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(FileFormatError):
        load_checkpoint(tmp_path)
    file.unlink()
    with pytest.raises(FileFormatError, match="a part of the checkpoint is missing"):
        load_checkpoint(tmp_path)

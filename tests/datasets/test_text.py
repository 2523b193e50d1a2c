"""Datasets of text: tokens, windows, Shakespeare in its layouts, and the made-up dialects."""

import json
from pathlib import Path

import leaf
import numpy as np
import pandas as pd
import pytest
import torch
from leaf import of_first

from alone import REAL_DATA
from fedgrid import datasets
from fedgrid.commands import data, partition
from fedgrid.datasets import _text, dialects, shakespeare, tinyshakespeare
from fedgrid.federation.federation import load_federation
from fedgrid.federation.stored import open_data
from fedgrid.runtime.names import UsageError
from fedgrid.study.protocol import PROTOCOL, SHARED

# --- characters and windows --------------------------------------------------------------------


def decode(tokens) -> str:
    """The characters of tokens, written out here once more."""
    small = "abcdefghijklmnopqrstuvwxyz"
    table = f"\n !\"&'(),-.0123456789:;>?{small.upper()}[]{small}}}"
    return "".join([*table, "#"][token] for token in tokens)


def test_the_table_has_leafs_eighty_characters_and_one_token_for_all_others():
    assert _text.encode("\n !}").tolist() == [0, 1, 2, 79]
    assert decode(range(80)) == _text.CHARACTERS
    assert _text.UNKNOWN + 1 == shakespeare.TOKENS == tinyshakespeare.TOKENS == 81
    tokens = _text.encode("a$\x7fé\u4e2d\U0001f600\ud800z")
    assert decode(tokens) == "a######z"
    assert tokens.dtype == np.uint8


def test_every_window_predicts_the_character_after_it():
    text = "".join(chr(97 + n % 26) + str(n % 10) for n in range(50))  # 100 characters
    rows, labels = _text.windows(_text.encode(text))
    assert (rows.shape, rows.dtype, labels.dtype) == ((20, 80), np.uint8, np.int64)
    assert [decode(row) for row in rows] == [text[n : n + 80] for n in range(20)]
    assert decode(labels) == text[80:]
    for length, count in ((0, 0), (79, 0), (80, 0), (81, 1), (82, 2)):
        rows, labels = _text.windows(np.zeros(length, np.uint8))
        assert (rows.shape, labels.shape) == ((count, 80), (count,))


def test_the_first_fifth_of_each_role_in_order_is_its_test_part():
    sizes = [1, 2, 4, 5, 9, 10, 23]
    roles = [
        (np.full((size, 3), n, np.uint8), 100 * n + np.arange(size)) for n, size in enumerate(sizes)
    ]
    split = _text.split(roles)
    tests = [0, 1, 1, 1, 1, 2, 4]
    expected = [100 * n + i for n, count in enumerate(tests) for i in range(count)]
    assert split.test_labels.tolist() == expected
    rest = [100 * n + i for n, size in enumerate(sizes) for i in range(tests[n], size)]
    assert split.train_labels.tolist() == rest
    for rows, labels, writers in (
        (split.train_images, split.train_labels, split.train_writers),
        (split.test_images, split.test_labels, split.test_writers),
    ):
        np.testing.assert_array_equal(writers, labels // 100)
        np.testing.assert_array_equal(rows[:, 0], writers)


# --- Tiny Shakespeare ----------------------------------------------------------------------------

LONG = "The quality of mercy is not strain'd, it droppeth as the gentle rain from heaven, "
PLAY = f"""PORTIA:
{LONG}
upon the   place beneath:

SHYLOCK:
What judgment shall I dread?

PORTIA:
It is twice $ blest.

 \tSecond Citizen:
{LONG.upper()}
yes.
"""


def write_play(root: Path, text: str = PLAY, **how) -> Path:
    path = root / "shakespeare/input.txt"
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(text, **how)
    return path


def test_speeches_of_a_speaker_are_joined_and_their_windows_split(tmp_path, caplog):
    write_play(tmp_path)
    with caplog.at_level("INFO"):
        split = datasets.load("tinyshakespeare", tmp_path)
    portia = f"{LONG}upon the place beneath: It is twice # blest."
    citizen = f"{LONG.upper()}yes."
    sizes = [len(portia) - 80, len(citizen) - 80]
    tests = [size // 5 for size in sizes]
    assert np.bincount(split.test_writers).tolist() == tests
    assert np.bincount(split.train_writers).tolist() == np.subtract(sizes, tests).tolist()
    for text, role, first in zip((portia, citizen), (0, 1), tests, strict=True):
        test, train = (split.test_writers == role), (split.train_writers == role)
        assert decode(split.test_labels[test]) == text[80 : 80 + first]
        assert decode(split.train_labels[train]) == text[80 + first :]
        assert decode(split.train_images[train][0]) == text[first : first + 80]
        assert decode(split.test_images[test][0]) == text[:80]
    said = caplog.text
    assert "1 of 3 speakers are left out, because they say no more than 80 characters" in said
    assert f"1 of {len(portia + citizen)} characters are unknown, and share one token" in said
    assert "is not the original Tiny Shakespeare" in said


@pytest.mark.parametrize(
    ("letters", "share"),
    [("αβγδεζηθικλμνξοπ", "100%"), ("абвгд efgh", "50%"), ("äbcdefghijklmnopqrstuvwxyz", "4%")],
)
def test_a_text_of_another_script_is_told(letters, share, tmp_path, capsys):
    text = "PORTIA:\n" + letters * 20
    write_play(tmp_path, text)
    datasets.load("tinyshakespeare", tmp_path)
    told = capsys.readouterr().err
    assert f"always predicts it is right for {share}: take a text in English letters" in told


@pytest.mark.parametrize("how", [{"newline": "\r\n"}, {"encoding": "utf-8-sig"}])
def test_other_ends_of_lines_and_a_byte_order_mark_change_nothing(how, tmp_path):
    write_play(tmp_path / "a")
    write_play(tmp_path / "b", **how)
    one, other = (datasets.load("tinyshakespeare", tmp_path / name) for name in "ab")
    assert all(map(np.array_equal, one, other))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a speech begins with ``, expected the speaker's name and a colon"),
        (":\nall", "a speech begins with `:`, expected the speaker's name"),
        (f"{PLAY}\n\nExeunt\nall.", "a speech begins with `Exeunt`, expected the speaker's name"),
        ("PORTIA:\nIt is twice blest.", "none of its 1 speakers says more than 80 characters: put"),
        (f"PORTIA:\n{LONG[:80]}", "none of its 1 speakers says more than 80 characters"),
    ],
)
def test_a_text_of_another_form_is_refused(text, says, tmp_path):
    path = write_play(tmp_path, text)
    with pytest.raises(UsageError, match=f"{path}: {says}"):
        datasets.load("tinyshakespeare", tmp_path)


def test_a_missing_text_and_one_that_is_none_are_named(tmp_path):
    with pytest.raises(UsageError, match=r"is not in .*/shakespeare/input.txt: put there the fil"):
        datasets.load("tinyshakespeare", tmp_path)
    write_play(tmp_path).write_bytes(b"PORTIA:\n\xff\xfe")
    with pytest.raises(UsageError, match=r"input.txt is damaged \(UnicodeDecodeError"):
        datasets.load("tinyshakespeare", tmp_path)


def test_the_real_text_is_whole(caplog):
    root = REAL_DATA
    if not (root / tinyshakespeare.GIVEN[0]).exists():
        pytest.skip(f"no Tiny Shakespeare in {root}; FEDGRID_DATA can name another folder")
    with caplog.at_level("INFO"):
        split = datasets.load("tinyshakespeare", root)
    assert "is not the original" not in caplog.text
    assert "53 of 309 speakers are left out" in caplog.text
    assert "1 of 1025768 characters are unknown" in caplog.text
    assert (len(split.train_labels), len(split.test_labels)) == (804_331, 200_957)
    assert split.train_writers.max() + 1 == len(np.unique(split.train_writers)) == 256
    lines = (root / tinyshakespeare.GIVEN[0]).read_text().split("\n\n")
    romeo = [speech.removeprefix("ROMEO:") for speech in lines if speech.startswith("ROMEO:\n")]
    text = " ".join(" ".join(romeo).split())
    own = text[80 : 80 + (len(text) - 80) // 5]
    tests = [decode(split.test_labels[split.test_writers == role]) for role in range(256)]
    assert tests.count(own) == 1


# --- Shakespeare ---------------------------------------------------------------------------------

NAMES = {"THE_TEMPEST_ARIEL": 11, "HAMLET_GHOST": 5, "MACBETH_PORTER": 1}  # not in their order


@pytest.fixture
def table() -> pd.DataFrame:
    """A window per row: blanks, a number, and a letter after them."""
    rows = [
        (name, f"{50 - n:79d},", chr(97 + n)) for name, count in NAMES.items() for n in range(count)
    ]
    return pd.DataFrame(rows, columns=["character_id", "x", "y"])


def of_roles(table: pd.DataFrame) -> dict:
    """The content of a file of LEAF's."""
    own = table.groupby("character_id", sort=False)
    return leaf.content({name: (part["x"], part["y"]) for name, part in own})


def test_windows_are_in_their_order_and_the_first_fifth_of_each_role_is_its_test(table, tmp_path):
    folder = tmp_path / "shakespeare/all_data"
    leaf.write(folder, of_roles(table[:14]), of_roles(table[14:]))  # HAMLET_GHOST is in both
    split = datasets.load("shakespeare", tmp_path)
    assert decode(split.test_labels) == "a" + "ab"
    assert split.test_writers.tolist() == [0, 2, 2]  # HAMLET, THE_TEMPEST; MACBETH has no test
    assert decode(split.train_labels) == "bcde" + "a" + "cdefghijk"
    assert split.train_writers.tolist() == [0] * 4 + [1] + [2] * 9
    assert decode(split.train_images[3]) == f"{46:79d},"
    assert decode(split.test_images[2]) == f"{49:79d},"


@pytest.mark.parametrize("folder", ["shakespeare/all_data", "shakespeare"])
def test_all_layouts_give_the_same(folder, table, tmp_path, monkeypatch):
    monkeypatch.setattr(pd, "read_parquet", lambda path, engine, columns: pd.read_pickle(path))
    table.loc[[0, 3], "y"] = [" ", '"']
    for name in ("csv/shakespeare", "a/shakespeare/data", "b/shakespeare/default/train"):
        (tmp_path / name).mkdir(parents=True)
    leaf.write(tmp_path / "leaf" / folder, of_roles(table))
    table.to_csv(tmp_path / "csv/shakespeare/shakespeare.csv", index=False)
    table.to_pickle(tmp_path / "a/shakespeare/data/train-00000-of-00001.parquet")
    for number, part in enumerate((table[:4], table[4:])):
        part.to_pickle(tmp_path / f"b/shakespeare/default/train/000{number}.parquet")
    found = [datasets.load("shakespeare", tmp_path / name) for name in ("leaf", "csv", "a", "b")]
    for other in found[1:]:
        assert all(map(np.array_equal, found[0], other))
    assert decode(found[0].test_labels) == "a" + " b"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (of_first(lambda own: own["x"].__setitem__(3, "abc")), "ARIEL has the window `abc`, exp"),
        (of_first(lambda own: own["x"].__setitem__(3, [1] * 80)), "ARIEL has the window `.*`, ex"),
        (of_first(lambda own: own["y"].__setitem__(3, "ab")), "ARIEL has the label `ab`, expecte"),
        (of_first(lambda own: own["y"].__setitem__(3, 7)), "ARIEL has the label `7`, expected a t"),
        (lambda c: c["user_data"].pop("HAMLET_GHOST"), r"all_data_0.json is damaged \(KeyError"),
        (lambda c: c.update(users=[], num_samples=[]), "the json files of .* hold no windows"),
    ],
)
def test_bad_json_is_named(change, says, table, tmp_path):
    change(content := of_roles(table))
    leaf.write(tmp_path / "shakespeare", content)
    with pytest.raises(UsageError, match=says):
        datasets.load("shakespeare", tmp_path)


def test_other_numbers_than_the_whole_datasets_are_told_and_read(
    table, tmp_path, caplog, capsys, monkeypatch
):
    table.loc[2, "y"] = "*"
    leaf.write(tmp_path / "shakespeare", of_roles(table))
    with caplog.at_level("INFO"):
        split = datasets.load("shakespeare", tmp_path)
    assert "holds 17 windows of 3 roles, and the whole dataset 4226158 of 1129" in caplog.text
    assert "1 of 17 next characters are unknown" in caplog.text
    assert (split.train_labels == 80).sum() == 1
    monkeypatch.setattr(shakespeare, "TOTAL", (17, 3))
    caplog.clear()
    leaf.write(tmp_path / "shakespeare", of_roles(table.assign(y="я")))
    datasets.load("shakespeare", tmp_path)
    assert "the whole dataset" not in caplog.text
    assert "17 of 17 next characters are unknown, and share one tok" in capsys.readouterr().err


# --- dialects ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spoken() -> datasets.Split:
    return datasets.load("dialects", None)


def chances() -> np.ndarray:
    """The chance of each letter after each letter, by role; all other letters share a quarter."""
    usual = dialects._successors(np.random.RandomState(0))
    found = np.full((20, 20, 20), 0.25 / 19)
    np.put_along_axis(found, usual[:, :, None], 0.75, axis=2)
    return found


def test_the_best_accuracies_are_those_of_the_docstring(spoken):
    """With the role, without it, and without it but by the whole window."""
    chance = chances()
    np.testing.assert_allclose(chance.sum(1), 1)  # so equal shares of all letters stay equal
    assert chance.max(2).mean() == pytest.approx(0.75)
    assert f"{chance.mean(0).max(1).mean():.1%}".replace("%", " %") in dialects.__doc__
    before, after = spoken.test_images[:, :-1], spoken.test_images[:, 1:]
    likely = np.log(chance[:, before, after]).sum(2)  # (roles, windows)
    which = np.exp(likely - likely.max(0))
    mixed = np.einsum("rw,rwk->wk", which / which.sum(0), chance[:, spoken.test_images[:, -1]])
    assert f"{mixed.max(1).mean():.1%}".replace("%", " %") in dialects.__doc__
    assert "75.0 %" in dialects.__doc__


# --- stages --------------------------------------------------------------------------------------


@pytest.fixture
def decoded(tmp_path):
    out = tmp_path / "data/dialects"
    data.main(["dialects", "--root", str(tmp_path), "--out", str(out)])
    return out


def test_tokens_are_described_and_not_measured(decoded, spoken):
    opened = open_data(decoded)
    assert (opened.tokens, opened.shape, opened.classes) == (20, (16,), 20)
    assert opened.meta["statistics"] == {}
    np.testing.assert_array_equal(opened.train_images, spoken.train_images)
    np.testing.assert_array_equal(opened.test_writers, spoken.test_writers)
    assert "tokens" not in datasets.describe("digits", datasets.load("digits", None))


def test_a_token_that_is_no_symbol_is_refused(decoded, spoken):
    wrong = spoken.test_images.copy()
    wrong[7, 3] = 20
    says = r"test images hold the token 20, but must lie between 0 and 19"
    with pytest.raises(UsageError, match=f"dialects: {says}"):
        datasets.check("dialects", spoken._replace(test_images=wrong))
    np.save(decoded / "test_images.npy", wrong)
    with pytest.raises(UsageError, match=says):
        open_data(decoded)


def test_a_federation_of_roles_has_tokens_and_no_statistics(decoded, tmp_path, spoken):
    protocol = {field: PROTOCOL[field] for field in SHARED}
    protocol |= {"clients": 20, "client_test_from": "writers"}
    spec = {
        "name": dict.fromkeys(("protocol", "dataset", "partition", "method", "seed"), "any"),
        **{"protocol": protocol, "dataset": "dialects", "partition": "writers"},
        **{"method": {}, "seed": 0},
    }
    paths = {"data": decoded, "partition": tmp_path / "made.npz"}
    out = ["--out", str(paths["partition"])]
    partition.main([json.dumps(spec), "--inputs", f"data={decoded}", *out])
    run = spec | {"protocol": PROTOCOL | protocol}
    found = load_federation(run, paths, torch.device("cpu"), torch.float64)
    assert found.tokens == 20
    assert found.mean.shape == found.std.shape == (0,)
    assert found.mean.dtype == torch.float64
    assert {*map(len, found.members)} == {96}
    for client, members in enumerate(found.members):  # a client is a role
        (role,) = np.unique(spoken.train_writers[members])
        own = found.client_tests.of_client(client)
        assert own.tolist() == np.flatnonzero(spoken.test_writers == role).tolist()

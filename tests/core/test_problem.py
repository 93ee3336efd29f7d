"""A file that cannot be used is refused in one sentence, and nothing of it is executed."""

import ast

import pytest

from mkevolve_core.errors import ProblemError
from mkevolve_core.problem import SAMPLES, find_problem, problem_name, read_problem, sample_problems

GOOD = """
import torch.nn as nn

raise SystemExit("executed")


class Model(nn.Module):
    pass


def get_inputs():
    return []


def get_init_inputs():
    return []
"""


@pytest.fixture
def write(tmp_path):
    def written(content, name="net.py"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return written


def refusal(path):
    with pytest.raises(ProblemError) as refused:
        read_problem(path)
    text = str(refused.value)
    assert text.startswith(str(path))
    assert text.endswith(".")
    return text


def test_a_good_file_is_read_and_not_executed(write):
    problem = read_problem(write(GOOD))
    assert (problem.name, problem.source) == ("net", GOOD)


def test_a_byte_order_mark_is_no_part_of_the_source(write):
    assert read_problem(write(b"\xef\xbb\xbf" + GOOD.encode())).source == GOOD


def test_names_bound_in_branches_and_by_import_count(write):
    source = "from other import Model\nif True:\n    def get_inputs(): ...\nget_init_inputs = list\n"
    assert read_problem(write(source)).name == "net"


def test_a_file_with_configs_needs_no_single_pair(write):
    source = "class Model: ...\n\n\ndef get_input_configs(): ...\n"
    assert read_problem(write(source)).source == source


def test_a_file_that_is_not_there_is_named(tmp_path):
    assert "does not exist" in refusal(tmp_path / "none.py")


def test_a_folder_is_no_problem_file(tmp_path):
    assert "is a folder" in refusal(tmp_path)


@pytest.mark.parametrize("content", ["", "\n  \n"])
def test_an_empty_file_says_what_it_must_define(write, content):
    assert "must define Model, get_inputs, get_init_inputs" in refusal(write(content))


def test_bytes_that_are_no_text_are_refused(write):
    assert "is not UTF-8 text (byte 2)" in refusal(write(b"ab\xff\xfe"))


def test_zero_bytes_are_refused(write):
    assert "is not Python" in refusal(write(GOOD + "\0"))


def test_a_syntax_error_is_refused_with_its_line(write):
    assert ", line 3 is not Python" in refusal(write("x = 1\n\ndef f(:\n"))


@pytest.mark.parametrize("name", ["Model", "get_inputs", "get_init_inputs"])
def test_a_missing_name_is_named(write, name):
    assert f"does not define {name}; add" in refusal(write(GOOD.replace(name, "other")))


def test_all_missing_names_are_named_at_once(write):
    assert "does not define Model and get_inputs and get_init_inputs" in refusal(write("x = 1\n"))


def test_a_function_called_model_is_refused_with_its_line(write):
    source = GOOD.replace("class Model(nn.Module):", "def Model():")
    assert ", line 7: Model is a function" in refusal(write(source))


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("32_ConvolutionalVisionTransformer", "ConvolutionalVisionTransformer"),
        ("my-net v2", "my_net_v2"),
        ("mlp", "mlp"),
        ("class", "problem_class"),
        ("123", "problem"),
        ("nätverk", "n_tverk"),
    ],
)
def test_a_problems_name_is_a_python_name(stem, name):
    assert problem_name(stem) == name
    ast.parse(f"from subkernel_problems.{problem_name(stem)} import Model")


def test_samples_are_readable_and_the_vision_transformer_is_first():
    samples = sample_problems()
    assert samples[0].name == "convolutional_vision_transformer"
    assert {p.name for p in samples} == {path.stem for path in SAMPLES.glob("[!_]*.py")}


def test_a_sample_is_found_by_its_name():
    assert find_problem("mlp") == read_problem(SAMPLES / "mlp.py")


def test_what_is_neither_a_path_nor_a_sample_lists_the_samples(tmp_path):
    with pytest.raises(ProblemError, match="or a sample: convolutional_vision_transformer, "):
        find_problem(tmp_path / "nothing.py")
    with pytest.raises(ProblemError, match="does not exist"):
        find_problem("__init__")

"""Lines that make one field of a sample, by their source."""

import inspect
import linecache
from collections.abc import Callable
from types import CodeType
from typing import Any

from trainperf.recording.probes.sample_fields import fields_made
from trainperf.recording.probes.user_stacks import described


class Scenes:
    """Samples of several kinds; what a method computes does not matter here."""

    compute: Callable[..., Any]

    def __getitem__(self, at: int) -> Any:
        first = self.compute(at)
        return first, self.compute(at, 1)

    def mapping(self, at: int) -> dict[str, Any]:
        """Some in a line of their own, some by variables."""
        raw = self.compute(at)
        depth = self.compute(raw)
        depth = self.compute(depth, "again")
        shared = self.compute("shared")
        image = self.compute(shared)
        return {
            "image": image,
            "depth": depth + 1,
            "shared": shared,
        }

    def in_a_line(self) -> dict[str, Any]:
        """Two fields."""
        return {"a": self.compute("a"), "b": self.compute("b")}

    def filled(self, at: int) -> dict[str, Any]:
        """One after the other."""
        sample: dict[str, Any] = {}
        sample["image"] = self.compute(at)
        if at:
            sample["depth"] = self.compute(at)
        return self.compute(sample)

    def crops(self, at: int) -> dict[str, Any]:
        """One of a loop of its own."""
        depth = self.compute(at)
        crops = tuple(
            self.compute(depth, number)
            for number in range(3)
        )  # fmt: skip
        return {"crops": crops}


def made(function: Callable[..., Any]) -> dict[str, list[str]]:
    """Field to its lines, without what surrounds them."""
    lines: dict[str, list[str]] = {}
    for line, field in sorted(fields_made(function.__code__).items()):
        lines.setdefault(field, []).append(linecache.getline(__file__, line).strip())
    return lines


def test_a_field_of_a_mapping_has_the_lines_that_nothing_else_needs() -> None:
    """A variable that two fields need is nobody's, and so is a line of two fields."""
    assert made(Scenes.mapping) == {
        "['depth']": [
            "raw = self.compute(at)",
            "depth = self.compute(raw)",
            'depth = self.compute(depth, "again")',
            '"depth": depth + 1,',
        ],
        "['image']": ["image = self.compute(shared)"],
    }
    assert made(Scenes.in_a_line) == {}


def test_a_sample_may_be_a_tuple_or_be_filled_key_by_key() -> None:
    """A tuple that another method returns is no sample."""
    assert made(Scenes.__getitem__) == {
        "[0]": ["first = self.compute(at)"],
        "[1]": ["return first, self.compute(at, 1)"],
    }
    assert made(Scenes.filled) == {
        "['image']": ['sample["image"] = self.compute(at)'],
        "['depth']": ['sample["depth"] = self.compute(at)'],
    }
    assert made(made) == {}


def test_lines_of_a_loop_inside_of_a_function_are_the_functions() -> None:
    """Its code has a beginning of its own, and the source of all."""
    code = Scenes.crops.__code__
    (loop,) = (each for each in code.co_consts if isinstance(each, CodeType))

    assert fields_made(loop) == fields_made(code)


def test_a_place_says_what_it_makes_where_that_is_asked_for_and_known() -> None:
    """Code without a source makes nothing that anybody could name."""
    code = Scenes.__getitem__.__code__
    line = inspect.getsourcelines(code)[1] + 1
    assert described(code, line, makes=True).makes == "[0]"
    assert described(code, line).makes == ""
    unknown: dict[str, Any] = {}
    exec("def f():\n  return {'a': g()}", unknown)  # noqa: S102 code without a file
    assert described(unknown["f"].__code__, 2, makes=True).makes == ""

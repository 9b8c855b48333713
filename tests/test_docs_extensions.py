"""Extensions of the documentation site: figures by reference, equations as MathML."""

import importlib
import re

import pytest

from tests.places import DOC_PAGES, DOCS, ROOT

pytest.importorskip("sphinx", reason="the extra docs is not installed")
REFERENCE = re.compile(r"\{figure\}`([^`]+)`")


@pytest.fixture
def extension(monkeypatch):
    """Import an extension by its name."""
    monkeypatch.syspath_prepend(str(DOCS / "_extensions"))
    return importlib.import_module


def test_every_figure_of_every_page_is_a_record(extension):
    text_of = extension("figures").text_of
    found = [(page, reference) for page in DOC_PAGES for reference in REFERENCE.findall(page.read_text())]
    assert len(found) > 200
    for page, reference in found:
        assert text_of(reference), f"{page.relative_to(ROOT)}: {reference}"


def test_a_figure_is_what_its_record_holds(extension, monkeypatch):
    figures = extension("figures")
    record = {
        "value": 1642, "unit": "steps/s", "spread": {"lowest": 1605, "highest": 1649.5, "interval": [1610, 1640]},
        "against": {"what": "a peer", "value": 687, "ratio": 2.39}, "machine": "a CPU", "commit": None,
        "reported": "dfc7a9f", "seeds": 3,
    }  # fmt: skip
    monkeypatch.setattr(figures, "records", lambda: {"rate": record})
    shown = {part: figures.text_of(f"rate {part}".strip()) for part in ("", *figures.PARTS)}
    assert shown == {
        "": "1,642 steps/s", "value": "1,642 steps/s", "number": "1,642", "lowest": "1,605", "highest": "1,650",
        "spread": "1,605 to 1,650", "interval": "1,610 to 1,640", "beside": "687", "ratio": "2.39", "machine": "a CPU",
        "commit": "dfc7a9f", "seeds": "3",
    }  # fmt: skip


@pytest.mark.parametrize(
    "reference, refusal",
    [
        ("solve-cartpole-apo", "no record .* 'solve-cartpole-apo'; nearest: solve-cartpole-appo"),
        ("solve-cartpole-appo worst", "'worst' is no part of a figure: use one of value, number"),
        ("solve-pong spread", "the record 'solve-pong' has no spread"),
        ("solve-pong beside", "the record 'solve-pong' has no beside"),
    ],
)
def test_an_unknown_figure_is_refused(extension, reference, refusal):
    with pytest.raises(ValueError, match=refusal):
        extension("figures").text_of(reference)


def test_an_equation_becomes_mathml_with_its_source(extension):
    found = extension("mathml").mathml(r"y = r + d \max_a Q(o^\prime, a; \theta^-)", "block")
    assert found.startswith(r'<math alttext="y = r + d \max_a Q(o^\prime, a; \theta^-)"')
    assert 'display="block"' in found and "<mo>max</mo>" in found


@pytest.mark.parametrize("latex", [r"\nosuchcommand x", r"\begin{aligned} a &= b \end{aligned}", "a_b_c", r"\left( x"])
def test_an_equation_that_mathml_cannot_express_is_refused(extension, latex):
    with pytest.raises(ValueError, match=re.escape(latex)):
        extension("mathml").mathml(latex, "block")

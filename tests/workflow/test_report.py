"""report.html as people open it: one file, in a browser, without a network."""

import base64
import json
import re
from pathlib import Path

import pytest
import yaml

from conftest import copied
from made import GRID, STUDY
from shown import visit
from workflows import snakemake

# Seconds instead of minutes: the smallest images, models and numbers of seeds.
SMALL = {
    "fidelity": {
        **{"images": {"digits": 12}, "size": 16, "model": "cnn", "judge": "cnn", "epochs": 1},
        **{"judge_epochs": 1, "autoencoder_epochs": 1},
        "encoders": {"saliency": 2, "autoencoder": 2, "area": 1},
    },
    "costs": {"model": "cnn", "dataset": "digits", "images": 8, "chunk": 4},
}
# Opens every category and every figure of the report, and writes down what a reader would see.
VISIT = """<script>
const seen = {navbar: {}, figures: {}, start: ""};
const pause = () => new Promise(done => setTimeout(done, 150));
async function visit() {
    await pause();
    seen.start = document.body.innerText;
    for (const name of Object.keys(categories)) {
        app.setView({navbarMode: "menu"});
        await pause();
        app.showCategory(name);
        await pause();
        seen.navbar[name] = document.querySelector("#app").innerText;
    }
    for (const [path, result] of Object.entries(results)) {
        if (result.mime_type !== "image/svg+xml") continue;
        app.setView({content: "img", contentPath: result.data_uri, resultPath: path});
        await pause();
        const shown = [...document.images].find(image => image.src === result.data_uri);
        seen.figures[path] = shown && shown.complete ? shown.naturalWidth : 0;
    }
    const note = document.createElement("pre");
    note.id = "seen";
    note.textContent = JSON.stringify(seen);
    document.body.append(note);
}
setTimeout(visit, 500);
</script></body>"""


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A project whose study is made, with its report."""
    folder = copied(tmp_path_factory.mktemp("reported"))
    study = folder / "workflow/studies/fedsls.yaml"
    about = yaml.safe_load(study.read_text())
    quick = about["scales"]["quick"]
    quick |= {name: quick[name] | small for name, small in SMALL.items()}
    study.write_text(yaml.safe_dump(about))
    for arguments in (["--cores", "2"], ["--report", "results/report.html"]):
        # A partition that all grids have.
        asked = ["--configfile", "tiny.yaml", "--config", "partition=dir0.05"]
        snakemake(folder, *arguments, *asked)
    return folder


@pytest.fixture(scope="module")
def products(project) -> dict[str, dict]:
    about = yaml.safe_load((project / "workflow/studies/fedsls.yaml").read_text())["products"]
    return {name: about[name] for name in GRID.products("fedsls", "quick")}


@pytest.fixture(scope="module")
def page(project) -> str:
    return (project / "results/report.html").read_text()


@pytest.fixture(scope="module")
def results(page) -> dict[str, dict]:
    """What is in the report, by path, as the page itself has it."""
    (text,) = re.findall(
        r'<script id="results">\s*var results = (.*?);\s*</script>', page, re.DOTALL
    )
    return json.loads(text)


@pytest.fixture(scope="module")
def seen(page, tmp_path_factory) -> dict:
    """What a browser that reaches no host shows of every category and figure."""
    return visit(page, VISIT, tmp_path_factory.mktemp("browser"), "--virtual-time-budget=60000")


@pytest.mark.slow
def test_every_product_of_the_study_is_in_the_report_with_its_caption(results, products):
    part = "protocol=tiny/partition=dir0.05/method=fedavg,moon,fedau,fedsls/seed=0"
    shown = {
        f"results/studies/fedsls/quick/{part}/{name}.{ext}"
        for name, about in products.items()
        for ext in ("csv", "html", "svg", "txt")
        if ext in about["formats"] or (ext == "txt" and "svg" in about["formats"])
    }
    assert results.keys() == shown
    for path, result in results.items():
        assert "quick" in result["caption"], path
        assert "says nothing about the paper" in result["caption"], path


@pytest.mark.slow
def test_tables_are_whole_pages_that_name_the_scale_of_their_runs(results, products):
    tables = {Path(path).stem: r for path, r in results.items() if path.endswith(".html")}
    assert tables
    for name, table in tables.items():
        text = base64.b64decode(table["data_uri"].partition("base64,")[2]).decode()
        assert "<table" in text
        without_runs = not products[name]["from"] or "Nothing is compared" in text
        assert ("quick scale" in text) != without_runs


@pytest.mark.slow
def test_the_report_is_one_file_that_asks_for_no_other(page):
    assert not re.findall(r"""<(?:script|link|img|iframe)[^>]+(?:src|href)=["']?https?:""", page)


@pytest.mark.slow
def test_run_times_are_there_and_have_a_place_on_the_logarithmic_axis(page):
    (text,) = re.findall(r"var runtimes_spec = (.*?);\s*</script>", page, re.DOTALL)
    rules = set(re.findall(r'"rule": "(\w+)"', text))
    assert {"train", "saliency", "scores", "fedsls_table1"} <= rules
    seconds = [float(number) for number in re.findall(r'"runtime": ([^,}\s]+)', text)]
    assert len(seconds) > 20
    assert min(seconds) > 0.01


@pytest.mark.slow
def test_no_rule_of_the_workflow_is_without_a_name_of_what_it_makes(page):
    rules = set(re.findall(r'"rule": "([^"]+)"', page))
    assert {"runs_table", "partition_table", "results_table1"} <= rules
    assert not rules & {"collect", "current"}


@pytest.mark.slow
def test_a_browser_without_a_network_shows_the_configuration_and_every_section(seen, products):
    said = STUDY["title"], STUDY["headline"]["says"]
    for part in (*said, "study: fedsls", "scale: quick", "tiny"):
        assert part in seen["start"]
    assert set(seen["navbar"]) == {about["category"] for about in products.values()}
    for name, about in products.items():
        assert name in seen["navbar"][about["category"]]


@pytest.mark.slow
def test_a_browser_without_a_network_shows_every_figure(seen, products):
    figures = {name for name, about in products.items() if "svg" in about["formats"]}
    assert {Path(path).stem for path in seen["figures"]} == figures
    for path, width in seen["figures"].items():
        assert width > 100, path


# -- on a telephone -------------------------------------------------------------------------------


@pytest.mark.slow
def test_on_a_telephone_the_report_is_not_wider_than_the_screen(page, tmp_path):
    found = visit(page, PHONE, tmp_path, "--window-size=390,844", "--virtual-time-budget=9000")
    assert found["scroll"] <= found["inner"]


PHONE = """<script>
setTimeout(() => {
    const note = document.createElement("pre");
    note.id = "seen";
    const seen = {scroll: document.documentElement.scrollWidth, inner: innerWidth};
    note.textContent = JSON.stringify(seen);
    document.body.append(note);
}, 1500);
</script></body>"""

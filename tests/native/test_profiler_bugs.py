"""What another profiler of the same env files gets wrong: each of its bugs, done right by ours.

The names of the tests are the bugs; the numbers of a row are those of a real run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]
PROJECT = Path(__file__).resolve().parents[2]

SCRIPT = """\
import os, sys, time
model = sys.argv[1] if len(sys.argv) > 1 else "good"
print("argv", sys.argv[1:])
with open(os.environ["LOG"], "a") as log:
    log.write(f"{sys.argv[1:]} {os.environ.get('OMP_NUM_THREADS')}\\n")
if "fail" in model:
    sys.exit("this model has no layers")
if "big" in model:
    block = bytearray(256 << 20)
    block[::4096] = b"1" * len(block[::4096])
if "slow" in model:
    time.sleep(30)
block = bytearray(20 << 20)
block[::4096] = b"1" * len(block[::4096])
del block
end = time.process_time() + 0.1
while time.process_time() < end:
    pass
"""
ENV = {
    "DIR": "bench",
    "SCRIPT": "test_perf.py",
    "COMMAND": f'"{sys.executable} -I -S"',
    "SAMPLETIME": "1",
    "OUTPUTFILE": "out.txt",
    "DOCKCPUS": "1.0",
    "DOCKMEMORY": "64m",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project as the env file wants it."""
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench/test_perf.py").write_text(SCRIPT)
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTHON_CPU_COUNT"):
        monkeypatch.delenv(name, raising=False)
    write(tmp_path)
    return tmp_path


def write(place: Path, text: str = "", **changes: str) -> None:
    lines = [f"{name}={value}\n" for name, value in {**ENV, **changes}.items() if value]
    (place / "env.template").write_text("".join(lines) + text)


def profile(cli: Cli, place: Path, *flags: str | Path, **options: Any) -> Any:
    return cli("profile", "-e", "env.template", *flags, cwd=place, **options)


def rows(cli: Cli, place: Path, *flags: str | Path) -> list[dict[str, Any]]:
    done = profile(cli, place, *flags, "--format", "json")
    assert done.stdout, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
    return found


def record_of(cli: Cli, row: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli("runs", "show", row["run_id"], "--json").stdout)
    return found


def text_of(place: Path) -> str:
    return (place / ENV["OUTPUTFILE"]).read_text()


# --- the exit status, and what is printed ---------------------------------------------------------


def test_the_exit_status_is_0_whatever_fails(cli: Cli, place: Path) -> None:
    done = profile(cli, place, "-m", "fail.tflite,good.tflite")

    assert done.status == 1
    assert "this model has no layers" in done.stderr  # the script's own words
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[3:]] == ["fail", "good"]
    assert lines[3].endswith("exit 1")
    assert lines[4].endswith("exit 0")


@pytest.mark.slow
def test_a_run_without_models_ends_with_status_1_and_has_no_summary(cli: Cli, place: Path) -> None:
    done = profile(cli, place)

    assert done.status == 0, done.stderr
    assert done.stdout.splitlines()[0] == "Final Usage Stats"
    kept = (place / "out.txt").read_text()
    assert kept.startswith("Profiling script: ")
    assert "\nUsage stats of the experiment of 20" in kept


@pytest.mark.slow
@pytest.mark.parametrize("flags", [("--unknown",), ("stray",)])
def test_an_unknown_word_is_an_endless_loop(cli: Cli, place: Path, flags: tuple[str]) -> None:
    done = profile(cli, place, *flags)

    assert done.status == 2
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_an_env_file_with_a_blank_in_its_path_hangs(cli: Cli, place: Path) -> None:
    (place / "env.template").rename(place / "my env.template")

    done = cli("profile", "-e", "my env.template", cwd=place)

    assert done.status == 0, done.stderr


def test_the_drop_in_takes_the_same_flags(place: Path, sandbox_home: Path) -> None:
    command = [sys.executable, "-m", "sandbox.profiler", "--environment", "env.template"]
    done = subprocess.run(
        [*command, "--modellist", "good.tflite"],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    without = subprocess.run(command[:3], capture_output=True, timeout=40, check=False)

    assert done.returncode == 0, done.stderr
    assert "good" in done.stdout
    assert without.returncode == 2
    assert b"--environment" in without.stderr


# --- the env file ---------------------------------------------------------------------------------


def test_a_commented_outputfile_above_the_real_one_wins(cli: Cli, place: Path) -> None:
    env = (place / "env.template").read_text()
    (place / "env.template").write_text("# OUTPUTFILE=wrong.txt\n" + env)

    assert profile(cli, place, "-m", "good.x").status == 0

    assert {path.name for path in place.glob("*.txt")} == {"out.txt", "good_out.txt"}


@pytest.mark.slow
def test_quotes_around_outputfile_or_no_last_newline_break_the_summary(
    cli: Cli, place: Path
) -> None:
    write(place, 'OUTPUTFILE="sum mary.txt"')

    assert profile(cli, place, "-m", "good.x").status == 0

    assert "Usage stats" in (place / "sum mary.txt").read_text()


def test_a_decimal_sampletime_gives_no_samples_and_all_zeros(cli: Cli, place: Path) -> None:
    write(place, SAMPLETIME="0.05")

    assert profile(cli, place, "-m", "good.x").status == 0

    samples = [
        line for line in (place / "good_out.txt").read_text().splitlines() if line[-13:].isdecimal()
    ]
    assert len(samples) >= 2
    steps = [int(line[-13:]) for line in samples]
    assert steps[1] - steps[0] == 50


@pytest.mark.slow
def test_a_command_of_two_words_is_one_program_that_is_not_found(cli: Cli, place: Path) -> None:
    assert profile(cli, place, "-m", "good.x").status == 0  # COMMAND has three words

    write(place, SCRIPT='"test_perf.py --iterations 3"')
    assert profile(cli, place, "-m", "good.x").status == 0

    assert "['good.x', '--iterations', '3']" in (place / "log").read_text()


@pytest.mark.slow
def test_dock_args_by_its_documented_name_is_ignored(cli: Cli, place: Path) -> None:
    write(place, 'DOCK_ARGS="-e OMP_NUM_THREADS=7"\n')

    assert profile(cli, place).status == 0

    assert (place / "log").read_text() == "[] 7\n"


@pytest.mark.slow
def test_an_absolute_dir_cannot_work(cli: Cli, place: Path) -> None:
    write(place, DIR=str(place / "bench"))

    assert profile(cli, place).status == 0


@pytest.mark.slow
def test_an_upper_case_model_breaks_the_image_tag(cli: Cli, place: Path) -> None:
    assert [row["name"] for row in rows(cli, place, "-m", "MobileNetV2.x")] == ["MobileNetV2"]


@pytest.mark.slow
def test_the_title_of_the_samples_has_stray_quotes(cli: Cli, place: Path) -> None:
    profile(cli, place, "-m", "good.x")

    title = (place / "good_out.txt").read_text().splitlines()[0]
    assert title == f"Profiling script: {sys.executable} -I -S test_perf.py good.x"


@pytest.mark.slow
def test_a_generated_file_of_an_earlier_run_is_used_as_it_is(cli: Cli, place: Path) -> None:
    profile(cli, place, "-m", "good.x")
    (place / "bench/test_perf.py").write_text("print('new')\n")

    (row,) = rows(cli, place, "-m", "good.x")

    assert row["cpu_mean_percent"] is not None
    assert not (place / "log").read_text().count("good.x") > 1  # the new script writes no log
    assert not [path for path in place.iterdir() if "Dockerfile" in path.name]


def test_more_cpus_than_the_host_has_fail_in_the_middle(cli: Cli, place: Path) -> None:
    write(place, DOCKCPUS="999")

    done = profile(cli, place, "-m", "good.x")

    assert done.status == 2
    host = len(os.sched_getaffinity(0))
    assert f"env.template:6: DOCKCPUS: 999 CPUs were asked for, but this host has {host}" in (
        done.stderr
    )
    assert not (place / "log").exists()


# --- the models -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_comments_blank_lines_and_odd_names_in_a_list_lose_the_summary(
    cli: Cli, place: Path
) -> None:
    (place / "models").write_text("# my models\n\ngood one.x\n  good2  \n")

    found = rows(cli, place, "-f", "models")

    assert [row["name"] for row in found] == ["good one", "good2"]
    assert (place / "log").read_text() == "['good one.x'] 1\n['good2'] 1\n"
    assert "good one" in (place / "out.txt").read_text()


@pytest.mark.slow
def test_a_model_whose_name_ends_in_txt_is_a_traceback(cli: Cli, place: Path) -> None:
    assert [row["model"] for row in rows(cli, place, "-m", "good.txt, b.x")] == ["good.txt", "b.x"]


def test_the_same_name_in_two_directories_collides(cli: Cli, place: Path) -> None:
    found = rows(cli, place, "-m", "a/net.x,b/net.x")

    assert [row["name"] for row in found] == ["a/net", "b/net"]
    assert {path.name for path in place.glob("*_out.txt")} == {"a_net_out.txt", "b_net_out.txt"}


@pytest.mark.slow
def test_two_sessions_at_once_collide(place: Path, sandbox_home: Path) -> None:
    command = [sys.executable, "-m", "sandbox", "profile", "-e", "env.template", "--format", "json"]
    write(place, OUTPUTFILE="$OUT")
    both = [
        subprocess.Popen(
            [*command, "-m", "good.x"],
            cwd=place,
            stdout=subprocess.PIPE,
            env={**os.environ, "OUT": name},
        )
        for name in ("one.txt", "two.txt")
    ]
    for process in both:
        with process:
            output, _ = process.communicate(timeout=40)
        assert process.returncode == 0
        assert json.loads(output)["rows"][0]["exit_code"] == 0


@pytest.mark.slow
def test_a_star_in_a_list_of_models_becomes_the_names_of_files(cli: Cli, place: Path) -> None:
    (place / "models").write_text("*.x\n")
    (place / "a.x").touch()
    (place / "b.x").touch()

    assert [row["model"] for row in rows(cli, place, "-f", "models")] == ["*.x"]


# --- the numbers ----------------------------------------------------------------------------------


def test_a_short_run_has_no_samples_and_a_time_of_0(cli: Cli, place: Path) -> None:
    write(place, SAMPLETIME="3")

    (row,) = rows(cli, place, "-m", "good.x")

    assert row["wall_ns"] > 100_000_000
    assert row["cpu_mean_percent"] > 0
    assert row["memory_peak_bytes"] > 20 << 20


@pytest.mark.slow
def test_the_total_time_is_from_the_first_sample_to_the_last(cli: Cli, place: Path) -> None:
    (place / "bench/test_perf.py").write_text("import time; time.sleep(1.3)\n")
    write(place, SAMPLETIME="1")

    (row,) = rows(cli, place)

    assert row["wall_ns"] >= 1_300_000_000


@pytest.mark.slow
def test_a_peak_between_two_samples_is_not_seen(cli: Cli, place: Path) -> None:
    """20 MiB are there for some milliseconds of a run whose sample time is a minute."""
    write(place, SAMPLETIME="60")

    (row,) = rows(cli, place, "-m", "good.x")

    assert row["memory_peak_bytes"] > 20 << 20


@pytest.mark.slow
def test_sizes_below_a_mebibyte_drop_the_row_and_decimal_ones_are_read_as_binary(
    cli: Cli, place: Path
) -> None:
    """The true bytes are in the record: no text is parsed on the way to the table."""
    (place / "bench/tiny.sh").write_text("sleep 0.2\n")
    write(place, SCRIPT="tiny.sh", COMMAND="sh")

    done = profile(cli, place)
    (row,) = rows(cli, place)

    assert 0 < row["memory_mean_bytes"] < 8 << 20
    assert " KiB / 64.0 MiB" in done.stdout or " MiB / 64.0 MiB" in done.stdout


@pytest.mark.slow
def test_block_io_is_a_mean_instead_of_a_total(cli: Cli, place: Path) -> None:
    (place / "bench/test_perf.py").write_text(
        "import os\n"
        "with open('written', 'wb') as file:\n"
        "    file.write(b'1' * (4 << 20)); file.flush(); os.fsync(file.fileno())\n"
    )

    (row,) = rows(cli, place)

    record = json.loads(cli("runs", "show", row["run_id"], "--json").stdout)
    assert row["write_bytes"] == record["summary"]["io_write_bytes"]
    if record["totals"]["io"]:  # none where the directory is in memory
        assert row["write_bytes"] == sum(one["write_bytes"] for one in record["totals"]["io"])


@pytest.mark.slow
def test_network_counters_of_the_host_are_not_said_to_be_the_scripts(cli: Cli, place: Path) -> None:
    """The script sends nothing, whatever others of this host do meanwhile."""
    (row,) = rows(cli, place, "-m", "good.x")

    shown = (place / "good_out.txt").read_text()
    if row["net_received_bytes"] is None:  # who is not root cannot count on the host's network
        assert "-- / --" in shown
    else:
        assert (row["net_received_bytes"], row["net_sent_bytes"]) == (0, 0)
        assert "0.0 B / 0.0 B" in shown


@pytest.mark.slow
def test_a_limit_of_cpus_leaves_a_thread_for_every_cpu_of_the_host(cli: Cli, place: Path) -> None:
    profile(cli, place, "-m", "good.x")

    assert (place / "log").read_text() == "['good.x'] 1\n"  # OMP_NUM_THREADS
    run = cli("runs", "ls", "-q").stdout.split()[0]
    record = json.loads(cli("runs", "show", run, "--json").stdout)
    assert record["thread_hints"]["OMP_NUM_THREADS"] == "1"


def test_out_of_memory_is_not_noticed_and_swap_doubles_the_limit(cli: Cli, place: Path) -> None:
    done = profile(cli, place, "-m", "big.x,good.x")

    assert done.status == 1
    assert "big: killed: out of memory" in done.stderr
    assert [line.split("  ")[-1].strip() for line in done.stdout.splitlines()[3:]] == [
        "OOM, exit 137",
        "exit 0",
    ]
    run = cli("runs", "ls", "-q").stdout.split()[-1]
    limits = json.loads(cli("runs", "show", run, "--json").stdout)["limits"]
    swap = next(limit for limit in limits if limit["name"] == "memory_swap")
    assert swap["asked"] == "64 MiB"  # the sum of both: no swap beside the memory


@pytest.mark.slow
def test_a_moment_without_any_use_ends_the_reading(cli: Cli, place: Path) -> None:
    """A shell that sleeps: steps of 0 % are rows like the others, up to the end."""
    (place / "bench/idle.sh").write_text("sleep 0.6\n")
    write(place, SCRIPT="idle.sh", COMMAND="sh", SAMPLETIME="0.1")

    (row,) = rows(cli, place)

    samples = re.findall(r"^idle .*?([\d.]+)% .* \d{13}$", text_of(place), re.MULTILINE)
    assert len(samples) == -(-row["wall_ns"] // 100_000_000)
    assert "0.00" in samples


@pytest.mark.slow
def test_no_throttling_is_reported(cli: Cli, place: Path) -> None:
    """Bug 9: a quota holds the script back, and nothing says so."""
    write(place, DOCKCPUS="0.1", SAMPLETIME="0.5")

    (row,) = rows(cli, place, "-m", "good.x")

    totals = record_of(cli, row)["totals"]
    if totals["cpu_periods"] is not None:  # where the kernel counts them
        assert totals["cpu_throttled_periods"] > 0
        assert totals["cpu_throttled_usec"] > 0
        assert 0 < row["throttled_ratio"] <= 1


@pytest.mark.slow
def test_the_start_of_the_container_is_part_of_the_time(cli: Cli, place: Path) -> None:
    """Bug 11: what is done before the script takes a second here, and is not its time."""
    write(place, PRERUN="'sleep 1'")

    begun = time.monotonic_ns()
    (row,) = rows(cli, place, "-m", "good.x")

    assert row["wall_ns"] < time.monotonic_ns() - begun - 1_000_000_000


@pytest.mark.slow
def test_there_is_no_time_of_an_inference_and_no_energy(cli: Cli, place: Path) -> None:
    """Bug 11: a script that marks its phases has the time and the peak of each of them."""
    (place / "bench/test_perf.py").write_text(
        f"import sys; sys.path.insert(0, {str(PROJECT)!r})\n"
        "import sandbox\n"
        "block = bytearray(20 << 20); block[::4096] = b'1' * len(block[::4096])\n"
        "sandbox.mark('infer')\n"
        "for _ in range(10 ** 6): pass\n"
    )
    write(place, COMMAND=sys.executable)

    (row,) = rows(cli, place, "-m", "good.x")

    record = record_of(cli, row)
    load, infer = record["phases"]
    assert infer["name"] == "infer"
    assert load["started_ns"] + load["wall_ns"] == infer["started_ns"]
    assert infer["totals"]["memory_peak_bytes"] > 20 << 20
    assert infer["totals"]["cpu_usage_usec"] > 0
    energy = record["totals"]["energy_uj"]
    assert energy is not None or "energy" in record["unavailable"]["energy_uj"]


@pytest.mark.slow
def test_there_are_no_repeats_and_no_intervals(cli: Cli, place: Path) -> None:
    """Bug 11: one run each, and no word on how far two of them differ."""
    export = place / "times.json"

    done = cli(
        *("bench", "-r", "3", "--export-json", export, "--memory", "64m", "--"),
        *(sys.executable, "-I", "-S", place / "bench/test_perf.py", "good.x"),
    )

    assert done.status == 0, done.stderr
    (result,) = json.loads(export.read_text())["results"]
    assert len(result["times"]) == 3
    assert result["min"] <= result["mean"] <= result["max"]
    assert result["stddev"] is not None
    assert "95 %" in done.stdout


@pytest.mark.slow
def test_the_ranking_is_left_to_the_user(cli: Cli, place: Path) -> None:
    """Bug 12: models are put in an order, and those that no run tells apart are tied."""
    words = (sys.executable, "-I", "-S", place / "bench/test_perf.py", "{model}")

    done = cli("sweep", "--json", "-m", "good.x,fine.x", "--memory", "64m", "-r", "2", "--", *words)

    assert done.status == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    assert {result["cell"]["model"] for result in results} == {"good.x", "fine.x"}
    table = cli("sweep", "-m", "good.x,fine.x", "--memory", "64m", "-r", "2", "--", *words).stdout
    assert "RANK" in table


@pytest.mark.slow
def test_nobody_knows_on_which_processor_it_was_measured(cli: Cli, place: Path) -> None:
    """Bug 13: times are those of one kind of CPU; each result says of which."""
    (row,) = rows(cli, place, "-m", "good.x")

    host = record_of(cli, row)["host"]
    assert host["machine"] == os.uname().machine
    cpuinfo = Path("/proc/cpuinfo").read_text()
    assert host["cpu_model"] is None or host["cpu_model"] in cpuinfo
    assert host["cpus_allowed"] == sorted(os.sched_getaffinity(0))


@pytest.mark.slow
def test_it_needs_docker_its_group_and_the_network(plain_user: Cli, plain_home: Path) -> None:
    """Bug 14: a plain user, no network at all, and no program called docker."""
    (plain_home / "bench").mkdir(mode=0o755)
    (plain_home / "bench/hello.sh").write_text("echo hello $1\n")
    (plain_home / "bench/hello.sh").chmod(0o644)
    (plain_home / "bin").mkdir(mode=0o755)
    for name in ("sh", "env", "bash", "setpriv"):
        if found := shutil.which(name):
            (plain_home / "bin" / name).symlink_to(found)
    env = plain_home / "env.template"
    env.write_text(
        f"DIR={plain_home}/bench\nSCRIPT=hello.sh\nCOMMAND=sh\nSAMPLETIME=0.1\n"
        f"OUTPUTFILE={plain_home}/out.txt\n"
    )

    apart = (
        "import os, sys; os.execv('/usr/bin/unshare', ['unshare', '--user', '--net', "
        "'--map-current-user', sys.executable, *sys.argv[1:]])"
    )
    done = plain_user(
        *("python", "-c", apart, "-m", "sandbox.profiler", "-e", env, "-m", "a.x"),
        cwd=plain_home,
        env={"PATH": str(plain_home / "bin")},
    )

    if "unshare failed" in done.stderr:
        pytest.skip("a plain user may make no namespaces here")
    assert done.status == 0, done.stderr
    assert done.stdout.splitlines()[3].startswith("a ")


def test_the_licence_is_the_gpl_and_python_is_old() -> None:
    """Bug 14."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]

    assert project["license"] == "Apache-2.0"
    assert "Apache License" in (PROJECT / "LICENSE").read_text()
    assert project["requires-python"] == ">=3.11"


@pytest.mark.slow
def test_the_sampler_itself_takes_half_a_cpu(cli: Cli, place: Path) -> None:
    (place / "bench/test_perf.py").write_text("import time; time.sleep(1)\n")

    (row,) = rows(cli, place)

    record = json.loads(cli("runs", "show", row["run_id"], "--json").stdout)
    assert record["overhead"]["cpu_usec"] < 250_000  # of a second that the script slept


# --- what is left behind --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_the_run_behind(
    cli: Cli, place: Path, sandbox_home: Path, number: int
) -> None:
    """That no process and no group is left is looked at after every test of this folder."""
    command = [sys.executable, "-m", "sandbox", "profile", "-e", "env.template"]
    with subprocess.Popen(
        [*command, "-m", "good.x,slow.x,good2.x"],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 30
        while "slow" not in _read(place / "log"):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(number)
        output, said = process.communicate(timeout=30)

    assert process.returncode == 128 + number
    assert "good" in output  # what was done is not lost
    assert "--resume" in said
    (place / "bench/test_perf.py").write_text(SCRIPT.replace("time.sleep(30)", "pass"))
    again = profile(cli, place, "-m", "good.x,slow.x,good2.x", "--resume", "--format", "json")
    assert again.status == 0, again.stderr
    assert [row["name"] for row in json.loads(again.stdout)["rows"]] == ["good", "slow", "good2"]
    assert _read(place / "log").count("good.x") == 1


@pytest.mark.slow
def test_a_stop_by_the_terminal_leaves_the_run_going(place: Path, sandbox_home: Path) -> None:
    """Bug 6: ^Z stops the script as well, and it goes on with the rest."""
    (place / "bench/test_perf.py").write_text(
        "import os, time\n"
        "for _ in range(40):\n"
        "    open(os.environ['LOG'], 'a').write('.'); time.sleep(0.05)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "sandbox", "profile", "-e", "env.template"],
        cwd=place,
        stdout=subprocess.PIPE,
        process_group=0,  # a job of its own, as a shell with job control has it
        text=True,
    ) as process:
        deadline = time.monotonic() + 30
        while not _read(place / "log"):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGTSTP)
        os.waitpid(process.pid, os.WUNTRACED)
        time.sleep(0.1)
        before = _read(place / "log")
        time.sleep(0.5)
        stopped = _read(place / "log")
        os.killpg(process.pid, signal.SIGCONT)
        output, _ = process.communicate(timeout=30)

    assert stopped == before
    assert process.returncode == 0
    assert "Final Usage Stats" in output
    assert len(_read(place / "log")) == 40


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.mark.slow
def test_files_pile_up_beside_the_project(cli: Cli, place: Path) -> None:
    before = {path.name for path in place.iterdir()}

    profile(cli, place, "-m", "good.x")
    profile(cli, place, "-m", "good.x")

    after = {path.name for path in place.iterdir()} - before
    assert after == {"log", "out.txt", "good_out.txt"} | (after & {"sandbox-home"})


# --- in an image ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_same_file_runs_in_an_image_of_this_machine(cli: Cli, place: Path) -> None:
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("busybox is not installed")
    (place / "box/bin").mkdir(parents=True)
    shutil.copy(busybox, place / "box/bin/busybox")
    (place / "box/bin/sh").symlink_to("busybox")
    (place / "box/etc").mkdir()
    (place / "box/etc/passwd").write_text("root:x:0:0::/root:/bin/sh\n")
    (place / "bench/where.sh").write_text(
        "read -r line </etc/passwd; echo $PWD $1 $line; exit $1\n"
    )
    write(place, SCRIPT="where.sh", COMMAND="sh", IMAGEREPO="127.0.0.1:9/box:1")
    absent = profile(cli, place, "-m", "0")
    write(place, SCRIPT="where.sh", COMMAND="sh", IMAGEREPO="box:1")
    assert cli("image", "load", "-q", "-t", "box:1", place / "box").status == 0
    found = rows(cli, place, "-m", "0,3")

    assert absent.status == 1
    assert "sandbox: error: " in absent.stderr
    assert "127.0.0.1:9" in absent.stderr
    assert [row["exit_code"] for row in found] == [0, 3]
    record = json.loads(cli("runs", "show", found[0]["run_id"], "--json").stdout)
    output = Path(record["directory"], "stdout").read_text()
    assert output == "/app 0 root:x:0:0::/root:/bin/sh\n"

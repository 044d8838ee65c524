# SPDX-License-Identifier: Apache-2.0
"""BASE models trained by several workers, as people use them: on other numbers of workers, with workers that die or
hang, from a dense model, with wrong input."""

import json
import os
import shutil
import signal
import subprocess
import time
import unittest
from pathlib import Path

from in_folder import BALLAST, InFolder

TINY = (
    "--model.width=16 --model.layers=2 --model.heads=2 --model.context=16 --training.threads=1 --training.batch=8 "
    "--training.validate_every=0 --training.validate_batches=2 --training.last_validate_batches=2 --training.sample_tokens=8 --data.builtin_bytes=60000 "
    "--training.log_every=50 --optimizer.learning_rate=5e-3 --optimizer.warmup_steps=5"
).split()
BASE = "--experts.layers=1 --experts.count=8 --experts.sublayers=1 --experts.groups=8".split()


class AnyNumberOfWorkers(InFolder):
    def train(self, run, workers, *more, steps=20):
        return self.run_well("train", *TINY, *BASE, "--training.precision=fp64", f"--training.steps={steps}", "--run", run,
                             "--workers", workers, *more)

    def test_all_give_the_same_losses_and_go_on_from_each_others_checkpoints(self):
        self.train("one", 1, "--checkpoint.every=10")
        expected = self.losses("one")
        self.assertEqual(len(expected), 20)
        for workers in (2, 4, 8):
            self.train(f"by{workers}", workers)
            self.assert_losses_near(f"by{workers}", expected, 1e-9)
            self.assertAlmostEqual(self.validation(f"by{workers}")["valid_loss"], self.validation("one")["valid_loss"], delta=1e-9)
            self.assertEqual(self.validation(f"by{workers}")["experts"][0]["loads"], self.validation("one")["experts"][0]["loads"])
        # Ten steps by N, ten more by M.
        for first, second in ((4, 1), (1, 8), (8, 2)):
            run = f"{first}-{second}"
            stop = subprocess.run([BALLAST, "train", *TINY, *BASE, "--training.precision=fp64", "--training.steps=20", "--run", run,
                                   "--workers", str(first), "--checkpoint.every=10", "--checkpoint.keep_last=9"],
                                  cwd=self.folder, capture_output=True, encoding="utf-8", timeout=300)
            self.assertEqual(stop.returncode, 0, stop.stderr)
            shutil.rmtree(self.folder / run / "checkpoints" / "step_00000020")
            again = self.run_well("train", "--run", run, "--resume", "auto", "--workers", second)
            self.assertIn("step_00000010", again.stderr)
            self.assert_losses_near(run, expected, 1e-9)
        files = {path.name for path in (self.folder / "8-2" / "checkpoints" / "step_00000020").iterdir()}
        self.assertEqual(files, {"manifest.json", "model.safetensors", "optimizer.safetensors", "experts.0-of-2.safetensors",
                                 "experts.1-of-2.safetensors", "experts_optimizer.0-of-2.safetensors", "experts_optimizer.1-of-2.safetensors"})

    def test_the_record_has_the_command_that_started_them(self):
        self.train("kept", 2, "--max-restarts", "1")
        (start,) = json.loads((self.folder / "kept/run.json").read_text())["starts"]
        self.assertEqual(start["workers"], 2)
        words = start["command_line"]
        self.assertEqual(words[words.index("--workers") + 1], "2", words)
        self.assertIn("--max-restarts", words)

    def test_the_groups_of_the_first_start_are_kept(self):
        result = self.run_well("train", *TINY, *BASE[:-1], "--training.steps=4", "--checkpoint.every=2", "--run", "kept", "--workers", 4)
        self.assertIn("4 routing group(s)", result.stderr)
        self.assertRegex((self.folder / "kept" / "config.toml").read_text(), r"(?m)^groups = 4")
        again = self.run_well("train", "--run", "kept", "--resume", "auto", "--workers", 2, "--training.steps", 6)
        self.assertIn("4 routing group(s)", again.stderr)

    def test_the_step_line_the_metrics_and_the_validation_tell_of_the_experts(self):
        result = self.train("seen", 2, "--training.log_every=1")
        self.assertRegex(result.stderr, r"step 20/20 .* greedy 0\.\d\d \| gap (?:0|\de[-+]\d\d) \| assign [\d.]+ms \d+% \| all2all [\d.]+ms \d+%")
        self.assertRegex(result.stderr, r"layer 1 \| greedy routing \| busiest expert [\d.]+ x its share \| \d of 8 experts in use")
        steps = [line for line in self.records("seen") if "loss" in line]
        layer = steps[-1]["layers"][0]
        self.assertEqual(layer["layer"], 1)
        self.assertTrue(0 < layer["greedy_share"] <= 1)
        self.assertLess(layer["relative_gap"], 1e-6)
        self.assertGreater(layer["exchange_seconds"], 0)
        self.assertEqual(sum(self.validation("seen")["experts"][0]["loads"]), self.validation("seen")["valid_tokens"])
        self.assertEqual(self.validation("seen")["other_routing"]["routing"], "greedy")

    def test_what_the_auction_leaves_open_is_not_called_a_gap(self):
        result = self.train("auction", 1, "--training.log_every=1", "--experts.solver=auction")
        self.assertRegex(result.stderr, r"step 20/20 .* \| <=[\d.e+-]+% below optimum \| assign")
        self.assertNotIn("| gap", result.stderr)
        layers = [line["layers"][0] for line in self.records("auction") if "loss" in line]
        self.assertGreater(max(layer["shortfall_bound"] for layer in layers), 0)
        self.assertFalse(any("relative_gap" in layer for layer in layers))

    def test_a_step_does_not_count_the_time_of_the_validation_before_it(self):
        self.train("timed", 2, "--training.validate_every=5", "--training.validate_batches=0", "--training.last_validate_batches=0", "--data.builtin_bytes=200000")
        parts = []  # of steps after a validation: the layer's seconds by those of the step, as worker 0 counts them
        for line in self.records("timed"):
            if line.get("step") in (6, 11, 16) and "layers" in line:
                seconds = line["layers"][0]["assign_seconds"] + line["layers"][0]["exchange_seconds"]
                parts.append(seconds * line["tokens_per_second"] / (8 * 16))
        self.assertEqual(len(parts), 3)
        self.assertLess(min(parts), 1, "a worker that gets no core makes one of them long, not all")

    def test_mpirun_starts_them_as_well(self):
        result = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2", BALLAST, "train",
                                 *TINY, *BASE, "--training.steps=5", "--json"], cwd=self.folder, capture_output=True, encoding="utf-8", timeout=300)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(json.loads(result.stdout)["step"], 5)
        self.assertEqual(result.stderr.count("run directory:"), 1)

    def test_a_stop_is_agreed_on(self):
        process = subprocess.Popen([BALLAST, "train", *TINY, *BASE, "--training.steps=100000", "--run", "stopped", "--workers", "2"],
                                   cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
        wait_for_steps(self, "stopped", 3, process)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, errors)
        self.assertIn("Stopped after", out)
        again = self.run_well("train", "--run", "stopped", "--resume", "auto", "--workers", 4, "--training.steps", max(self.losses("stopped")) + 2)
        self.assertIn("Done", again.stdout)


def wait_for_steps(test, run, steps, process):
    metrics = test.folder / run / "metrics.jsonl"
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        if metrics.exists() and metrics.read_text().count('"loss"') >= steps:
            return
        time.sleep(0.01)
    test.fail(f"no step {steps}: {process.poll()}")


def workers_of(run):
    """The processes that train this run, by rank."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        rank = [int(v.split(b"=")[1]) for v in environment if v.startswith(b"OMPI_COMM_WORLD_RANK=")]
        if rank and b"train" in words and run.encode() in words:
            found[rank[0]] = int(entry.name)
    return found


class AWorkerIsLost(InFolder):
    STEPS = 200  # so many that one is lost before they are done

    def start(self, run, *more, steps=STEPS, deadline=60):
        return subprocess.Popen([BALLAST, "train", *TINY, *BASE, f"--training.steps={steps}", "--checkpoint.every=10", "--run", run,
                                 "--workers", "4", "--deadline", str(deadline), *more],
                                cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")

    def test_one_that_is_killed_ends_the_job_which_names_it(self):
        process = self.start("killed", steps=100000)
        wait_for_steps(self, "killed", 12, process)
        os.kill(workers_of("killed")[2], signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn("worker 2", errors)

    def test_one_that_is_stopped_ends_the_job_within_the_deadline_which_names_it(self):
        process = self.start("frozen", steps=100000, deadline=10)
        wait_for_steps(self, "frozen", 12, process)
        pid = workers_of("frozen")[1]
        os.kill(pid, signal.SIGSTOP)
        begun = time.monotonic()
        _, errors = process.communicate(timeout=90)
        self.assertLess(time.monotonic() - begun, 60)
        self.assertNotEqual(process.returncode, 0)
        self.assertRegex(errors, r"worker 1 (does not answer|was)")
        self.assertFalse(Path(f"/proc/{pid}/stat").exists() and b"T" in Path(f"/proc/{pid}/stat").read_bytes().split()[2:3],
                         "the stopped worker is still there")

    def test_with_restarts_it_ends_with_the_loss_of_an_undisturbed_run(self):
        self.run_well("train", *TINY, *BASE, f"--training.steps={self.STEPS}", "--checkpoint.every=10", "--run", "quiet", "--workers", 4)
        for trouble, deadline, restarts in ((signal.SIGKILL, 60, 1), (signal.SIGSTOP, 10, 3)):
            run = f"mended-{trouble.name}"
            # One restart is needed. On a busy machine four workers may take longer to start than the deadline.
            process = self.start(run, "--max-restarts", str(restarts), deadline=deadline)
            wait_for_steps(self, run, 17, process)
            os.kill(workers_of(run)[3], trouble)
            out, errors = process.communicate(timeout=200)
            self.assertEqual(process.returncode, 0, errors)
            self.assertIn("worker 3", errors)
            self.assertIn("Done", out)
            self.assertEqual(self.losses(run), self.losses("quiet"), "to the bit")


class FromDenseToSparse(InFolder):
    def test_a_fresh_layer_is_the_identity_so_the_loss_does_not_jump(self):
        dense = ["--training.steps=30", "--run", "dense"]
        self.run_well("train", *TINY, *dense)
        last = self.validation("dense")["valid_loss"]
        result = self.run_well("train", *TINY, *BASE, "--training.steps=1", "--optimizer.learning_rate=0", "--run", "sparse", "--init-from", "dense")
        self.assertIn("not in them, fresh: layer.1", result.stderr)
        self.assertAlmostEqual(self.validation("sparse")["valid_loss"], last, places=5)
        self.refused("train", *TINY, *BASE, "--model.width=32", "--run", "other", "--init-from", "dense", says=["token_embedding", "another configuration"])
        self.assertFalse((self.folder / "other").exists())
        more = self.run_well("train", *TINY, "--experts.layers=0", "--training.steps=1", "--run", "less", "--init-from", "sparse")
        self.assertIn("left out: layer.1", more.stderr)
        # More sublayers: the new ones are the identity, too. From an export as from a run.
        self.run_well("export", "sparse", "--out", "exported")
        deep = self.run_well("train", *TINY, *BASE, "--experts.sublayers=3", "--training.steps=1", "--optimizer.learning_rate=0", "--run", "deep",
                             "--init-from", "exported", "--workers", 2)
        self.assertIn("layer.1 sublayer 1, layer.1 sublayer 2", deep.stderr)
        self.assertAlmostEqual(self.validation("deep")["valid_loss"], self.validation("sparse")["valid_loss"], places=5)

    def test_another_router_takes_over_the_experts(self):
        self.run_well("train", *TINY, *BASE, "--training.steps=20", "--run", "base")
        result = self.run_well("train", *TINY, *BASE, "--experts.router=switch", "--training.steps=20", "--run", "switch",
                               "--init-from", "base", "--workers", 2)
        self.assertIn("not in them, fresh: layer.1 gate\n", result.stderr)
        self.assertIn("left out: layer.1 expert embeddings\n", result.stderr)

    def test_experts_in_place_of_feed_forwards_leave_those_out(self):
        self.run_well("train", *TINY, "--training.steps=20", "--run", "dense")
        gates = [*BASE, "--experts.router=sparsely_gated", "--experts.placement=replace"]
        result = self.run_well("train", *TINY, *gates, "--training.steps=20", "--run", "sparse", "--init-from", "dense")
        self.assertIn("not in them, fresh: layer.2\n", result.stderr)
        self.assertIn("left out: block.1 feed-forward\n", result.stderr)
        top = self.run_well("train", *TINY, *BASE, "--experts.router=sparsely_gated", "--experts.placement=top", "--training.steps=2",
                            "--run", "top", "--init-from", "sparse")  # its layer 2 is no feed-forward
        self.assertIn("fresh: block.1 feed-forward, layer.2\n", top.stderr)
        self.assertIn("left out: their layer.2 gate, their layer.2 sublayer 0\n", top.stderr)
        again = self.run_well("train", *TINY, "--experts.layers=0", "--training.steps=5", "--run", "dense again", "--init-from", "sparse")
        self.assertIn("not in them, fresh: block.1 feed-forward\n", again.stderr)

    def test_a_start_that_was_lost_before_its_first_checkpoint_keeps_the_weights(self):
        self.run_well("train", *TINY, "--training.steps=60", "--run", "dense")
        command = ["train", *TINY, *BASE, "--training.steps=100000", "--checkpoint.every=0", "--run", "sparse", "--init-from", "dense"]
        process = subprocess.Popen([BALLAST, *command], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for_steps(self, "sparse", 2, process)
        process.kill()
        process.wait()
        first = self.losses("sparse")[1]
        again = self.run_well("train", "--run", "sparse", "--resume", "auto", "--training.steps", 2)
        self.assertIn("step_00000000", again.stderr)
        self.assertEqual(self.losses("sparse")[1], first)


class WrongInput(InFolder):
    def test_numbers_of_workers_that_do_not_divide(self):
        self.refused("train", *TINY, *BASE, "--run", "r", "--training.batch=9", "--workers", 3, says=["experts.count: 8 experts cannot be divided among 3 workers"])
        self.refused("train", *TINY, *BASE, "--run", "r", "--experts.groups=2", "--workers", 4, says=["experts.groups (fixed when a run starts): 2 routing groups cannot be divided among 4 workers"])
        self.refused("train", *TINY, *BASE, "--run", "r", "--experts.groups=7", says=["experts.groups: 7 routing groups do not divide the 8 x 16 tokens"])
        self.refused("train", *TINY, "--run", "r", "--training.batch=6", "--workers", 4, says=["training.batch: 6 sequences"])
        self.assertEqual(list(self.folder.glob("r*")), [], "nothing is left behind")

    def test_the_numbers_of_workers_that_would_do_are_named(self):
        self.refused("train", *TINY, *BASE[:-1], "--run", "r", "--workers", 3, says=["8 sequences of a micro-step cannot be divided among 3 workers; with this config 1, 2, 4, 8 would do"])

    def test_configs_that_cannot_be(self):
        self.refused("train", *TINY, "--experts.layers=3", says="3 layers of experts do not fit between 2 blocks")
        self.refused("train", *TINY, "--experts.layers=2", "--experts.placement=top", says="top is for one layer")
        self.refused("train", *TINY, *BASE, "--experts.router=sparsely_gated", "--experts.count=1", says="experts.count")
        self.refused("train", *TINY, *BASE, "--experts.router=switch", "--experts.test_routing=priced", says="priced is for experts.router base")
        self.refused("train", *TINY, *BASE, "--experts.capacity=-0.5", says="experts.capacity: want a factor")
        self.refused("train", *TINY, "--experts.router=switch", says="give experts.layers")
        for knob in ("solver=auction", "self_check=true", "second_expert=random"):
            self.refused("train", *TINY, *BASE, "--experts.router=switch", f"--experts.{knob}", says=f"experts.{knob.split('=')[0]} is for experts.router")
        self.refused("train", *TINY, *BASE, "--workers", 2, "--experts.groups=1", "--training.model_parallel=2",
                     says="1 routing groups cannot be divided among 2 workers; with --model-parallel 1 1 would do")
        self.refused("train", *TINY, "--model.width=65536", "--model.layers=24", says="the model does not fit")
        self.refused("train", *TINY, "--workers", 0, says="--workers")
        self.refused("train", *TINY, "--max-restarts", 1, says="--workers")
        self.refused("train", *TINY, "--workers", 2, "--prefix-lines", "--json", says="--prefix-lines would break what --json prints")

    def test_workers_that_are_started_differently(self):
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
        one = [BALLAST, "train", *TINY, *BASE, "--run", "r"]
        result = subprocess.run([*command, "-n", "1", *one, ":", "-n", "1", *one, "--optimizer.beta2=0.9"],
                                cwd=self.folder, capture_output=True, encoding="utf-8", timeout=120)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("optimizer.beta2", result.stderr)
        self.assertEqual(result.stderr.count("the workers do not agree"), 1)
        self.assertFalse((self.folder / "r").exists())

    def test_a_run_directory_that_not_all_see(self):
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
        for name in ("here", "there"):
            (self.folder / name).mkdir()
        one = [BALLAST, "train", *TINY, *BASE, "--run", "r"]
        result = subprocess.run([*command, "-n", "1", "--wdir", self.folder / "here", *one, ":", "-n", "1", "--wdir", self.folder / "there", *one],
                                capture_output=True, encoding="utf-8", timeout=120)
        self.assertNotEqual(result.returncode, 0)
        self.assertRegex(result.stderr, "worker 1")

    def test_a_checkpoint_that_lacks_a_file_or_an_expert(self):
        self.run_well("train", *TINY, *BASE, "--training.steps=4", "--run", "r", "--workers", 2)
        folder = self.folder / "r" / "checkpoints" / "step_00000004"
        (folder / "experts.1-of-2.safetensors").unlink()
        self.refused("train", "--run", "r", "--resume", "auto", "--workers", 2, "--training.steps", 8, says=["experts.1-of-2.safetensors"])
        # Four experts where eight are wanted.
        self.run_well("train", *TINY, *BASE, "--experts.count=4", "--training.steps=2", "--run", "four")
        self.refused("train", *TINY, *BASE, "--run", "eight", "--init-from", "four", "--workers", 2, says=["layer.1.expert"])
        self.assertFalse((self.folder / "eight").exists())

    def test_data_that_differs_between_workers(self):
        for name, size in (("here", 60000), ("there", 90000)):
            (self.folder / name).mkdir()
            self.run_well("prepare", "builtin", "--builtin-bytes", size, "--out", self.folder / name / "data")
        (self.folder / "there" / "r").symlink_to(self.folder / "here" / "r")
        one = [BALLAST, "train", *TINY, *BASE, "--data", "data", "--run", "r"]
        result = subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "1", "--wdir", self.folder / "here", *one,
                                 ":", "-n", "1", "--wdir", self.folder / "there", *one], capture_output=True, encoding="utf-8", timeout=120)
        self.assertNotEqual(result.returncode, 0)
        self.assertRegex(result.stderr, r"data: \d+ tokens, fingerprint")

    def test_a_number_that_was_resolved_at_the_first_start(self):
        self.run_well("train", *TINY, *BASE, "--experts.groups=0", "--training.steps=2", "--run", "r", "--workers", 2)
        self.run_well("train", "--run", "r", "--resume", "auto", "--experts.groups=0", "--training.steps", 4)
        self.refused("train", "--run", "r", "--resume", "auto", "--training.steps", 6, "--workers", 8,
                     says=["2 routing groups cannot be divided among 8 workers; with this config 1, 2 would do"])

    def test_nccl_without_gpus(self):
        if Path("/dev/nvidiactl").exists():
            self.skipTest("there is a GPU")
        result = self.refused("train", *TINY, *BASE, "--run", "r", "--workers", 2, "--engine", "nccl", says="NCCL")
        self.assertRegex(result.stderr, "GPU")


if __name__ == "__main__":
    unittest.main()

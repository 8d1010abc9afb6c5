# SPDX-License-Identifier: MIT
"""Tests of cmake/cuda_architectures.cmake with a make-believe nvidia-smi and nvcc. Run by ctest as
`tools`."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CHOICE = ROOT / "cmake" / "cuda_architectures.cmake"
H200 = "9.0, NVIDIA H200"
SPARK = "12.1, NVIDIA GB10"
RTX_4090 = "8.9, NVIDIA GeForce RTX 4090"
RTX_5090 = "12.0, NVIDIA GeForce RTX 5090"


class Choice(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.program("nvcc", "\n".join(
            f"compute_{n}" for n in (75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121)))
        (self.folder / "choose.cmake").write_text(
            f'include("{CHOICE}")\nnibble_choose_cuda_architectures(nvcc)\n'
            'message(STATUS "result ${CMAKE_CUDA_ARCHITECTURES}")\n')

    def program(self, name, prints, status=0):
        path = self.folder / name
        path.write_text(f"#!/bin/sh\ncat <<'TEXT'\n{prints}\nTEXT\nexit {status}\n")
        path.chmod(0o755)

    def choose(self, gpus=None, status=0, by_hand=None, environment=None):
        """Returns (the list chosen, the line that says why). gpus None: no nvidia-smi at all."""
        if gpus is not None:
            self.program("nvidia-smi", "\n".join(gpus), status)
        # Nothing but the make-believe programs and a `cat` for them.
        os.symlink(shutil.which("cat"), self.folder / "cat")
        env = {"PATH": str(self.folder), **(environment or {})}
        definitions = [f"-DCMAKE_CUDA_ARCHITECTURES={by_hand}"] if by_hand is not None else []
        run = subprocess.run([shutil.which("cmake"), *definitions, "-P", "choose.cmake"],
                             cwd=self.folder, env=env, capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        said, result = run.stdout.strip().splitlines()
        self.assertTrue(result.startswith("-- result "), result)
        return result.removeprefix("-- result ").split(";"), said

    def test_one_gpu_gets_its_own_architecture_and_is_named(self):
        self.assertEqual(self.choose([H200]), (
            ["90a-real"], "-- CUDA code for 90a-real (for the GPUs found: NVIDIA H200 (9.0))"))

    def test_dgx_spark(self):
        self.assertEqual(self.choose([SPARK])[0], ["121a-real"])

    def test_blackwell_of_data_centres(self):
        self.assertEqual(self.choose(["10.0, NVIDIA B200", "10.3, NVIDIA B300"])[0],
                         ["100a-real", "103a-real"])

    def test_two_kinds_get_both(self):
        architectures, said = self.choose([RTX_5090, RTX_4090])
        self.assertEqual(architectures, ["89-real", "120a-real"])
        self.assertIn("RTX 4090 (8.9), NVIDIA GeForce RTX 5090 (12.0)", said)

    def test_two_of_a_kind_are_compiled_for_once(self):
        architectures, said = self.choose([H200, H200])
        self.assertEqual(architectures, ["90a-real"])
        self.assertEqual(said.count("H200"), 1)

    def test_no_nvidia_smi(self):
        architectures, said = self.choose()
        self.assertEqual(architectures, ["90a-real", "80-virtual"])
        self.assertIn("(no GPU found, nvidia-smi: ", said)

    def test_nvidia_smi_that_fails(self):
        architectures, said = self.choose(["NVIDIA-SMI has failed, driver 535.12, ..."], status=9)
        self.assertEqual(architectures, ["90a-real", "80-virtual"])
        self.assertIn("(no GPU found, nvidia-smi failed, exit 9)", said)

    def test_nvidia_smi_without_devices(self):
        architectures, said = self.choose(["No devices were found"])
        self.assertEqual(architectures, ["90a-real", "80-virtual"])
        self.assertIn("(no GPU found, nvidia-smi lists none)", said)

    def test_a_gpu_later_than_nvcc_gets_ptx(self):
        architectures, said = self.choose(["13.0, NVIDIA Later"])
        self.assertEqual(architectures, ["80-virtual"])
        self.assertIn("NVIDIA Later (13.0: unknown to nvcc, so the driver will compile PTX", said)

    def test_what_nvcc_knows_decides(self):
        self.program("nvcc", "compute_90\ncompute_100\ncompute_120")  # as of CUDA 12.8
        architectures, said = self.choose([SPARK, H200])
        self.assertEqual(architectures, ["90a-real", "80-virtual"])
        self.assertIn("NVIDIA GB10 (12.1: unknown to nvcc", said)

    def test_a_gpu_that_is_too_old_is_said_to_be(self):
        architectures, said = self.choose(["7.5, Tesla T4"])
        self.assertEqual(architectures, ["80-virtual"])
        self.assertIn("Tesla T4 (7.5: not used, nibble's kernels need 8.0 or later)", said)

    def test_a_gpu_beside_one_that_is_too_old(self):
        architectures, said = self.choose(["7.5, Tesla T4", RTX_4090])
        self.assertEqual(architectures, ["89-real"])
        self.assertIn("Tesla T4 (7.5: not used", said)

    def test_by_hand_wins_over_gpus_and_environment(self):
        self.assertEqual(
            self.choose([H200], by_hand="121a-real", environment={"CUDAARCHS": "86-real"}),
            (["121a-real"], "-- CUDA code for 121a-real (by hand, CMAKE_CUDA_ARCHITECTURES)"))

    def test_environment_wins_over_gpus(self):
        self.assertEqual(
            self.choose([H200], environment={"CUDAARCHS": "86-real;89-real"}),
            (["86-real", "89-real"],
             "-- CUDA code for 86-real;89-real (by hand, CUDAARCHS in the environment)"))

    def test_nothing_by_hand_is_no_choice(self):
        self.assertEqual(
            self.choose([H200], by_hand="", environment={"CUDAARCHS": ""})[0], ["90a-real"])

    def test_release_is_every_gpu(self):
        architectures, said = self.choose([RTX_4090], by_hand="release")
        self.assertEqual(architectures,
                         ["80-virtual", "90a-real", "100a-real", "120a-real", "121a-real"])
        self.assertIn("release", said)


if __name__ == "__main__":
    unittest.main()

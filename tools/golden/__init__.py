# SPDX-License-Identifier: MIT
"""Parts of tools/make_golden.py, which makes and checks the reference vectors of tests/golden."""

# SPDX-License-Identifier: MIT OR Apache-2.0
"""`bench/run --against`: an older build and this tree, in turns within one run."""

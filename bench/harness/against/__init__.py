"""`bench/run --against`: an older build and this tree, in turns within one run."""

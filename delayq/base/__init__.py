"""The tools that every other package uses: errors, clocks, times, URLs, the terminal, signals."""

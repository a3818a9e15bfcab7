"""What every part of the library uses: checks, wording, files, states."""

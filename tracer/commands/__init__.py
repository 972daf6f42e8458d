"""One file per subcommand: its options, one call, and what it prints."""

"""kmint for coding agents: tools of an MCP server, explanations of verdicts, and a skill file."""

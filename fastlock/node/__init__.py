"""The node: groups around the compiled core, and the I/O around the groups."""

"""The token store on disk: format, writer, reader, verification."""

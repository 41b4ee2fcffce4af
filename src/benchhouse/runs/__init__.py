"""Submit, poll, retry, resume, collect: from a Plan to sealed trial folders. The ledger is files."""

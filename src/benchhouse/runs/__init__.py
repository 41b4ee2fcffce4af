"""Submit, poll, retry, resume, collect: a Plan goes in, sealed trial folders come out. The ledger is files."""

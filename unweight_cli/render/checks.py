"""What an operation has checked, in words."""

from unweight.operations.report import CheckKind, OperationReport


def checked(report: OperationReport) -> str:
    """Say what was compared, and what it proves: how far the weights are from the original ones."""
    if report.checked is CheckKind.DIGESTS:
        return _digests(report)
    against = " against the original" if report.checked is CheckKind.ORIGINAL else ""
    if report.exact:
        return f"bit-exact{against}: verified"
    if report.checked is CheckKind.ORIGINAL:
        return (
            f"relative error{against} at most {report.worst_error:.3g}, "
            f"allowed {report.max_epsilon:.3g}: verified"
        )
    total = sum(len(file.tensors) for file in report.files)
    others = ", the others bit-exact" if report.bounded_tensors < total else ""
    return (
        f"relative error at most {report.worst_error:.3g} in {report.bounded_tensors:,} of "
        f"{total:,} tensors{others}: verified"
    )


def _digests(report: OperationReport) -> str:
    owner = "the original" if report.exact else "the restored file"
    words = f"SHA-256 of {owner}{'' if len(report.files) == 1 else 's'}: verified"
    if not report.exact:
        words += f"; weights within a relative error of {report.max_epsilon:.3g}"
    if not report.carried_files:
        return words
    files = "file" if report.carried_files == 1 else "files"
    outcome = "copied, not checked" if report.operation == "decompress" else "not checked"
    return f"{words}; {report.carried_files:,} other {files} {outcome}"

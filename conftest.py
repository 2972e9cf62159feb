"""What all tests need of the process that they run in."""

import signal


def pytest_configure() -> None:
    """Receive the signals of a terminal, which a shell's background and `nohup` ignore.

    What is ignored here would be ignored in every process that a test starts and then signals.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)

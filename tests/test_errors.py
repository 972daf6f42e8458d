"""Every refusal has one base, and each front end spells the options in its message."""

import pickle

import analyzers
import tracer
from analyzers import errors
from analyzers.errors import Option
from tracer import errors as recording


def test_every_refusal_is_a_tracer_error():
    assert analyzers.TracerError is tracer.TracerError is errors.TracerError
    kinds = [
        kind
        for module in (errors, recording)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, Warning)
    ]
    assert len(kinds) > 10
    assert all(issubclass(kind, tracer.TracerError) for kind in kinds)


def test_options_are_spelled_as_python_and_the_command_line_have_them():
    error = tracer.TracerError("give ", Option("bucket_mb", 25), " or ", Option("force"))
    assert str(error) == "give bucket_mb=25 or force=True"
    assert error.for_shell == "give --bucket-mb 25 or --force"


def test_a_message_in_parts_comes_out_of_another_process_as_it_went():
    error = pickle.loads(pickle.dumps(errors.TooLarge("less: ", Option("workers", 1))))
    assert (str(error), error.for_shell) == ("less: workers=1", "less: --workers 1")

"""`tracer whatif RUN`: what its steps would take with other settings, GPUs or links."""

from __future__ import annotations

import argparse
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from analyzers.ranks import rank_number
from analyzers.units import LARGEST, SMALLEST
from tracer.atomic_files import write_bytes, write_text
from tracer.commands.options import (
    add_output_argument,
    add_reading_arguments,
    add_run_argument,
    emit,
    here,
    links_of,
    positive,
    positive_number,
    read,
    read_drawn,
    refusal,
    refuse_all_existing,
    working,
    write_page,
)
from tracer.errors import UsageError
from tracer.views import ITEMSIZE, csv_text

if TYPE_CHECKING:
    from analyzers.prediction import Options, WhatIf


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `tracer whatif`."""
    add_run_argument(parser)
    what = parser.add_argument_group("what is predicted (default: all that the run can have)")
    what.add_argument(
        "--bucket-mb", type=caps, default=(), metavar="MB,...", help="bucket caps (default: default,1,2,5,10,25,50,100)"
    )
    what.add_argument("--gpus", type=counts, default=(), metavar="N,...", help="numbers of GPUs (default: the run's)")
    what.add_argument("--only", type=words, default=(), metavar="KIND,...", help="these kinds of changes alone")
    what.add_argument("--straggler", type=rank, metavar="RANK", help="a rank that is as the others")
    what.add_argument(
        "--host-time",
        type=shares,
        metavar="SHARE,...",
        default=(),
        help="CPUs that take this share of their time; 0: one CUDA graph",
    )
    what.add_argument(
        "--grad-accumulation",
        type=counts,
        default=(),
        metavar="N,...",
        help="steps of N microbatches, of which the last synchronizes",
    )
    what.add_argument("--gradient-as-bucket-view", action="store_true", help="gradients are views of DDP's buckets")
    what.add_argument("--no-broadcast-buffers", action="store_true", help="no broadcast of buffers")
    what.add_argument("--grad-dtype", choices=ITEMSIZE, help="in which gradients travel (default: as recorded)")
    _add_sharding(parser.add_argument_group("FSDP2, all at once (default: what people try, each for itself)"))
    _add_links(parser.add_argument_group("links (default: the run's own links.json, or else its own transfers)"))
    out = parser.add_argument_group("output")
    out.add_argument("--json", action="store_true", help="the predictions as JSON")
    out.add_argument("--csv", type=here, metavar="FILE", help="also write them as CSV")
    out.add_argument("--plot", type=here, metavar="FILE", help="also draw them: .png, .svg or .pdf")
    out.add_argument("--html", type=here, metavar="FILE", help="also write the report's page with them")
    add_output_argument(out)
    add_reading_arguments(parser, steps=True, drawing=True)


def _add_sharding(sharding: argparse._ArgumentGroup) -> None:
    sharding.add_argument("--no-prefetch", action="store_true", help="all-gathers of the backward in their turn")
    sharding.add_argument(
        "--no-reshard-after-forward", action="store_true", help="modules stay gathered for their backward"
    )
    sharding.add_argument(
        "--separate-reduce-scatter-group", action="store_true", help="reduce-scatters have a communicator of their own"
    )
    sharding.add_argument("--param-dtype", choices=ITEMSIZE, help="in which parameters are gathered")
    sharding.add_argument("--reduce-dtype", choices=ITEMSIZE, help="in which gradients are reduced")


def _add_links(links: argparse._ArgumentGroup) -> None:
    links.add_argument("--links", type=here, metavar="FILE", help="the links as `tracer calibrate` measured them")
    links.add_argument("--bus-gbps", type=rate, metavar="GB/S", help="bus bandwidth of all-reduces, for all sizes")
    links.add_argument("--latency-us", type=latency, metavar="US", help="time of the smallest all-reduce (default: 0)")
    links.add_argument("--gpus-per-host", type=positive, metavar="N", help="GPUs per host")
    links.add_argument("--host-gbps", type=rate, metavar="GB/S", help="a host's network, in one direction")


def run(options: argparse.Namespace) -> int:
    """Read, predict, print."""
    from analyzers.prediction import to_json, whatif
    from analyzers.reporting import path_lanes
    from tracer.results import given_links
    from tracer.views.html import report_html
    from tracer.views.sections.results import prediction_text

    _check(options)
    written = [path for path in (options.output, options.html, options.csv, options.plot) if path is not None]
    if len({path.absolute() for path in written}) < len(written):
        raise UsageError("two of -o, --html, --csv and --plot name one file")
    refuse_all_existing(written, options.force)
    calibration = links_of(options)
    summary, of_run, drawn = (read(options), None, ()) if options.html is None else read_drawn(options, calibration)
    links = (
        calibration
        if options.bus_gbps is None
        else given_links(options.bus_gbps, options.latency_us or 0.0, options.gpus, summary)
    )
    with working("other settings"):
        prediction = whatif(summary, _options(options), links)
    _write(options, prediction)
    if of_run is not None:
        paths = path_lanes(summary, of_run)
        document = report_html(of_run, drawn, calibration or summary.calibration, prediction, paths)
        write_page(options.html, document, options.force)
    emit(options, partial(to_json, prediction), partial(prediction_text, prediction))
    return 0


def _write(options: argparse.Namespace, prediction: WhatIf) -> None:
    """Write the files that go with the text."""
    from analyzers.prediction import SCENARIOS
    from tracer.views.plots import prediction_picture

    if options.csv is not None:
        write_text(options.csv, csv_text(SCENARIOS.frame(prediction)), options.force)
    if options.plot is not None:
        write_bytes(options.plot, prediction_picture(prediction, _form(options.plot)), options.force)


def _form(path: Path) -> str:
    return path.suffix.lower().removeprefix(".")


def _check(options: argparse.Namespace) -> None:
    """Raise UsageError for options that make no sense together."""
    from tracer.views.plots import FORMS

    if options.plot is not None and _form(options.plot) not in FORMS:
        raise UsageError(f"--plot {options.plot}: a picture ends in {', '.join(f'.{name}' for name in FORMS)}")
    if options.links is not None and options.bus_gbps is not None:
        raise UsageError("--links and --bus-gbps both describe the links: give one of them")
    if options.ranks is not None and options.html is None:
        raise UsageError("--ranks only applies to --html: it selects the ranks that the page draws")
    if options.latency_us is not None and options.bus_gbps is None:
        raise UsageError("--latency-us requires --bus-gbps")
    if (options.gpus_per_host is None) != (options.host_gbps is None):
        raise UsageError("--gpus-per-host and --host-gbps require each other: give both")


def _options(options: argparse.Namespace) -> Options:
    from analyzers.prediction import Options
    from analyzers.settings import Hosts

    return Options(
        only=options.only,
        bucket_mb=options.bucket_mb,
        gpus=options.gpus,
        bucket_views=options.gradient_as_bucket_view,
        broadcast_buffers=not options.no_broadcast_buffers,
        gradient_itemsize=ITEMSIZE.get(options.grad_dtype),
        hosts=None if options.gpus_per_host is None else Hosts(options.gpus_per_host, options.host_gbps),
        straggler=options.straggler,
        host_times=options.host_time,
        accumulations=options.grad_accumulation,
        prefetch=False if options.no_prefetch else None,
        reshard_after_forward=False if options.no_reshard_after_forward else None,
        separate_reduce_scatter_group=True if options.separate_reduce_scatter_group else None,
        param_itemsize=ITEMSIZE.get(options.param_dtype),
        reduce_itemsize=ITEMSIZE.get(options.reduce_dtype),
    )


def caps(text: str) -> tuple[float | None, ...]:
    """Parse an option's bucket caps in MB, `default` for DDP's own; each once."""
    return tuple(dict.fromkeys(None if part.strip() == "default" else rate(part) for part in text.split(",")))


def counts(text: str) -> tuple[int, ...]:
    """Parse an option's numbers of GPUs, the fewest first."""
    return tuple(sorted({positive(part) for part in text.split(",")}))


def rank(text: str) -> int:
    """Parse an option's rank."""
    number = rank_number(text)
    if number is None:
        raise refusal(text, "give the number of a rank")
    return number


def words(text: str) -> tuple[str, ...]:
    """Parse an option's words, each once."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",")))


def shares(text: str) -> tuple[float, ...]:
    """Parse an option's shares from 0 to 1, each once."""
    return tuple(dict.fromkeys(_share(part) for part in text.split(",")))


def _share(text: str) -> float:
    with suppress(ValueError):
        if 0 <= float(text) <= 1:
            return float(text)
    raise refusal(text, "give shares from 0 to 1")


def rate(text: str) -> float:
    """Parse an option's positive number, in GB/s or MB."""
    value = positive_number(text)
    if not SMALLEST <= value <= LARGEST:
        raise refusal(text, f"give a number from {SMALLEST:g} to {LARGEST:g}")
    return value


def latency(text: str) -> float:
    """Parse an option's time in us, which may be 0."""
    with suppress(ValueError):
        if float(text) == 0:
            return 0.0
    return rate(text)

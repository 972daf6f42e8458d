"""Idle time of a rank's devices, by cause.

`gaps` finds them and the event that ends each, `host_states` and `phases` what the host was in, with `data_loading` for
the loader and `python_functions` for what samples of its stack tell. `causes` divides gaps, `launch_facts` counts
launches and calls that wait, `idle_time` adds up, and `idle_track` puts pieces in time.

Decisions: docs/dev/decisions/rank.md
"""

from analyzers.rank.idle.causes import divide_host_time
from analyzers.rank.idle.data_loading import Fetching, fetching
from analyzers.rank.idle.gaps import DeviceTime
from analyzers.rank.idle.host_states import Cause
from analyzers.rank.idle.idle_time import OTHERS, HostRows, Idle, idle_of
from analyzers.rank.idle.idle_track import IdleTrack
from analyzers.rank.idle.phases import Phase
from analyzers.rank.idle.python_functions import main_function

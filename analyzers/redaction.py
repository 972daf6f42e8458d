"""Redaction of secrets in texts, URLs and settings.

HF_TOKEN  client_secret  db.password  apiKey         name a secret
eos_token  max_tokens  token_budget  password_file   do not
hf_...  ghp_...  AKIA...  eyJ...                     are one, wherever they stand

Secrets stand in places, too: before a URL's host, in its query, in headers. It is no proof that nothing is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, unquote_plus

# Longer texts are no messages, and to look through a gigabyte of run.json takes an hour: their ends are hidden.
LONGEST = 100_000
# Settings that hold one another deeper are hidden.
_DEEPEST = 50
# A shorter value would be found in ordinary words.
_LEAST_SECRET = 6

# What may hold a URL; two slashes tell one, or one, which is what a Path leaves of them, or more.
_RUN = re.compile(r"[^\s'\"<>]+")
_QUERY = re.compile(r"[?#]")
_SLASHES = re.compile(r":/+")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+$", re.IGNORECASE)
_LONGEST_SCHEME = 40
# A colon that is not a port's tells a password, in which a slash may stand.
_USER = re.compile(r"[^/:]*:(?!\d{1,5}(?:[/,;):]|$))")

# Each begins where nothing of a name stands before it, so that no part of a long text is looked at twice.
_PAIR = re.compile(
    r"(?<![\w.-])-{0,2}(?P<name>\w(?:[\w.-]*\w)?)(?P<quote>\\*['\"])?\]?"
    r"(?:=(?!=)|[^\S\n]+=[^\S\n]+|(?P<colon>\s*:(?![:/\\=])[^\S\n]*))"
)
_OPTION = re.compile(r"(?<![\w.-])--?(?P<name>[A-Za-z][\w.-]*)(?:[^\S\n]|\\\n)+(?=[^\s=-])")
# In a list of words, as Python shows it.
_LISTED_OPTION = re.compile(r"(?<![\w.-])--?(?P<name>[A-Za-z][\w.-]*)['\"]\s*,\s*(?=['\"])")
_QUOTED = {
    quote: re.compile(rf"(\\*){quote}(?P<value>[^{quote}\\]*(?:\\.[^{quote}\\]*)*?)(?:\1{quote}|\Z)", re.DOTALL)
    for quote in "'\""
}
# A comma ends a value where another pair follows, a bracket where no more of the value does.
_BARE = re.compile(
    r"(?P<value>(?:[^\s&;,'\"<>()\[\]{}\\]|\\[^'\"n]|,(?![\w.+-]*[\w\]][^\S\n]*[=:]|\s|\Z)|[()\[\]{}](?=\w))+)",
    re.DOTALL,
)
_MARK = re.compile(r"(?P<value><[^\s<>]*>|\[\w+\]|\$\{[^\s{}]*\}|\{\{[\w. ]*\}\}|\$\([^()]*\))")
# How a header's secret is meant, which is none itself.
SCHEME_WORD = re.compile(r"(?:apikey|basic|bearer|digest|negotiate|oauth|token)[^\S\n]+(?=\S)", re.IGNORECASE)
_ANY_SCHEME_WORD = re.compile(r"[\w-]+[^\S\n]+(?=[^\s'\"])")
_BEARER = re.compile(r"\b(bearer[^\S\n]+)(?!\*\*\*)[\w.~+/=-]{8,}", re.IGNORECASE)
_COOKIE = re.compile(r"\b((?:set-)?cookie:[^\S\n]*)(?![\s*])[^\n'\"]+", re.IGNORECASE)


def redacted(text: str, url: str = "") -> str:
    """Return a text without what only its owner should know, as far as it can be told; and without that of a URL."""
    if len(text) > LONGEST:
        return redacted(text[:LONGEST], url) + HIDDEN
    for secret in sorted(_secrets(url), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    text = _RUN.sub(_without_users_and_queries, SHAPES.sub(HIDDEN, text))
    text = _COOKIE.sub(rf"\1{HIDDEN}", text)
    for keys in (_PAIR, _OPTION, _LISTED_OPTION):
        text = _without_values(text, keys)
    return _BEARER.sub(rf"\1{HIDDEN}", text)


def redacted_url(url: str) -> str:
    """Return one URL, which ends where the text does, without who asks and without its query, whatever is in that."""
    path, mark, query = url.partition("?")
    return redacted(path) + mark + HIDDEN if query else redacted(url)


def redacted_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings or an environment without the secrets that their keys and their texts tell, however deep."""
    return {key: _redacted_value(sort_of(key), value, _DEEPEST) for key, value in values.items()}


def _redacted_value(sort: Sort, value: Any, depth: int) -> Any:
    if isinstance(value, Mapping | list) and not depth:
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: _redacted_value(sort_of(key), inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, list):
        return [_redacted_value(sort, part, depth - 1) for part in value]
    if value is None or isinstance(value, bool):
        return value
    if is_secret(sort, str(value)):
        return HIDDEN
    return redacted(value) if isinstance(value, str) else value


def _without_users_and_queries(run: re.Match[str]) -> str:
    """Hide who asks, before the host, and what is asked, which may end at a bracket around the URL."""
    text = run[0]
    if ":/" not in text:
        return text
    shown, at, last_pair = "", 0, text.rfind("=")
    while at < len(text):
        query = _QUERY.search(text, at)
        if query is None:
            return shown + _without_users(text[at:])
        segment, at = text[at : query.start()], query.end()
        shown += _without_users(segment) + query[0]
        # A fragment without pairs is a place in the page.
        if _is_url(segment) and text[at : at + 1] not in ("", ")") and (query[0] == "?" or last_pair >= at):
            shown += HIDDEN
            end = text.find(")", at)
            at = end if end >= 0 else len(text)
    return shown


def _is_url(segment: str) -> bool:
    return any(_SCHEME.search(_before(segment, slashes)) for slashes in _SLASHES.finditer(segment))


def _without_users(segment: str) -> str:
    shown, at = "", 0
    for start, end in _users(segment):
        shown += segment[at:start] + HIDDEN
        at = end
    return shown + segment[at:]


def _users(segment: str) -> Iterator[tuple[int, int]]:
    """Yield where it stands who asks: USER:PASSWORD, or a token alone."""
    done, last = 0, segment.rfind("@")
    for slashes in _SLASHES.finditer(segment):
        start = slashes.end()
        if start > last:
            return
        if start < done or not _begins_url(segment, slashes):
            continue
        host = segment.find("/", start)
        end = segment.rfind("@", start, host if host >= 0 else len(segment))
        if end < 0 and _USER.match(segment, start):
            end = last
        if end >= 0:
            done = end
            yield start, end


def _begins_url(segment: str, slashes: re.Match[str]) -> bool:
    before, count = _before(segment, slashes), len(slashes[0]) - 1
    if count == 1:
        return _SCHEME.search(before) is not None
    return count == 2 or not before.lower().endswith("file")


def _before(segment: str, slashes: re.Match[str]) -> str:
    return segment[max(slashes.start() - _LONGEST_SCHEME, 0) : slashes.start()]


def _secrets(url: str) -> Iterator[str]:
    """Yield the values in a URL's query and before its host, as they stand and decoded."""
    path, *query = re.split(r"[?#]", url, maxsplit=1)
    who = next((path[start:end] for start, end in _users(path)), "")
    if ":" in who:
        yield who
    values = [value for pair in re.split(r"[&;#]", query[0] if query else "") for value in pair.split("=", 1)[1:]]
    values += [*query, *who.split(":")]
    for value in values:
        yield from {each for each in (value, unquote(value), unquote_plus(value)) if len(each) >= _LEAST_SECRET}


def _without_values(text: str, keys: re.Pattern[str]) -> str:
    """Hide the values that follow names of secrets."""
    shown, at, has_braces = [], 0, "{" in text
    for key in keys.finditer(text):
        sort = sort_of(key["name"])
        if sort is Sort.OPEN or key.start() < at:
            continue
        value = _value(text, key)
        if value is None or not is_secret(sort, text[slice(*value)]):
            continue
        begins = has_braces and text[max(key.start() - 2, 0) : key.start()].strip()[-1:] in ("{", ",")
        if _is_prose(key, text[slice(*value)], sort, begins or text[value[0] - 1] in "'\""):
            continue
        shown += [text[at : value[0]], HIDDEN]
        at = value[1]
    return "".join([*shown, text[at:]])


def _is_prose(key: re.Match[str], value: str, sort: Sort, is_marked: bool) -> bool:
    """Whether a word may follow another by chance: `unexpected token: end of file`, `--token is missing`."""
    if key.re is _PAIR and (key["quote"] or not key["colon"] or sort is Sort.SECRET):
        return False
    return not is_marked and not is_random(value)


def _value(text: str, key: re.Match[str]) -> tuple[int, int] | None:
    """Return where the value of a key begins and ends, without its quotes and how it is meant; None without any."""
    start = key.end()
    quote = text[start : start + 8].lstrip("\\")[:1]
    if quote in _QUOTED and (quoted := _QUOTED[quote].match(text, start)):
        start, end = quoted.span("value")
    else:
        start, end = _unquoted_from(text, start, key["name"])
        if start == end:
            return None
    meant = SCHEME_WORD.match(text, start, end)
    return (meant.end() if meant else start), end


def _unquoted_from(text: str, start: int, name: str) -> tuple[int, int]:
    words = _ANY_SCHEME_WORD if name.lower().endswith("authorization") else SCHEME_WORD
    meant = words.match(text, start)
    start = meant.end() if meant else start
    ends = [match.end() for match in (_BARE.match(text, start), _MARK.match(text, start)) if match]
    return start, max(ends, default=start)


HIDDEN = "***"


class Sort(Enum):
    """What a key's name says of its value."""

    OPEN = "nothing that is secret"
    SECRET = "a secret, whatever it looks like"
    TOKEN = "a secret, unless it is a number or what a tokenizer knows"
    KEPT_IN_A_FILE = "a secret, or the path of the file that holds it"
    RANDOM = "a secret if it looks random, or like USER:PASSWORD"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# A name is what its last part is: a token_budget is a budget.
_SORTS = {
    **dict.fromkeys(
        ("password", "passwd", "passphrase", "passcode", "secret", "apikey", "authorization", "bearer", "jwt"),
        Sort.SECRET,
    ),
    "token": Sort.TOKEN,
    **dict.fromkeys(("credential", "credentials", "creds", "secrets", "cookie", "cookies", "pwd"), Sort.KEPT_IN_A_FILE),
    **dict.fromkeys(("sig", "signature", "auth"), Sort.RANDOM),
}
# Whatever comes before it in one word: PGPASSWORD, clientsecret.
_FUSED = re.compile(r"(.+?)(password|passwd|passphrase|secret|apikey)$")
# Before a key, a token, a pass; most keys are of a dictionary.
_AUTHORITY = _words("access api auth bearer oauth refresh secret session")
_KEYED = (_AUTHORITY - {"session"}) | _words(
    "account admin encryption license master service shared signing storage subscription"
)
_SERVICES = _words(
    "anthropic aws azure clearml cohere comet gcp gemini github gitlab google groq hf hub huggingface kaggle mistral "
    "mlflow neptune ngc nvidia openai openrouter replicate sendgrid stripe swanlab wandb"
)
_KEYED_FILES = _words("client private ssh ssl tls")
_LOGINS = _words("admin db ftp http imap mail mongo mysql pg postgres proxy redis root smtp ssh user")
_FUSED_PAIR = re.compile(rf"({'|'.join(sorted(_KEYED | _SERVICES | {'private', 'id'}))})(key|token)$")
# Tokens of a vocabulary or of a model's input.
_OF_MODELS = _words(
    "action added aux begin blank bos by byte char class cls code concept control decoder delimiter dist distill "
    "distillation end entity eod eom eos eot extra fim first global image img initializer input instance label lang "
    "language last latent learnable line mask mem memory middle modifier motion newline next obj oov output pad "
    "padding patch pause per placeholder pooling prefix prompt query rare readout reg register sep separator silence "
    "single special speech split start state stop sub suffix task text think timestamp tokenizer tool trigger unk "
    "unknown video vision visual word"
)
# Names of switches, such as --no-password.
_SWITCHES = _words("ask disable enable has hide ignore is no print require show skip")
# What may come after the name of a secret without making it something else: password2, token_value.
_TAILS = _words("b base plain plaintext raw str string text value")
# Those of them that make a token one of a vocabulary.
_TAILS_OF_MODELS = _words("str string text")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SIGNED = re.compile(r"x[-_](?:amz|goog|ms)[-_]", re.IGNORECASE)
_LONGEST_NAME = 200


@lru_cache(maxsize=1024)
def sort_of(name: str) -> Sort:
    """Return what is told by the name of an option, a variable, a header or a key, by its parts."""
    if _SIGNED.match(name):
        return Sort.SECRET
    parts = [part.lower() for part in _PARTS.findall(name[-_LONGEST_NAME:])]
    if not parts or parts[0] in _SWITCHES:
        return Sort.OPEN
    while len(parts) > 1 and (parts[-1].isdigit() or parts[-1] in _TAILS):
        if parts[-2] == "token" and parts[-1] in _TAILS_OF_MODELS:
            return Sort.OPEN
        parts.pop()
    if parts[-1] == "id" and parts[-2:-1] and (parts[-2] == "access" or parts[-3:-1] == ["access", "key"]):
        return Sort.SECRET
    fused = _FUSED.match(parts[-1]) or _FUSED_PAIR.match(parts[-1])
    if fused and fused.re is _FUSED:
        return Sort.SECRET
    words = [*parts[:-1], *(fused.groups() if fused else parts[-1:])]
    return _sort_of_noun(words[-1], words[-2] if len(words) > 1 else "")


def _sort_of_noun(noun: str, before: str) -> Sort:
    if noun == "key":
        if before in _KEYED_FILES:
            return Sort.KEPT_IN_A_FILE
        if before == "session":
            return Sort.RANDOM  # or the name of a column
        return Sort.SECRET if before in _KEYED | _SERVICES else Sort.OPEN
    if noun == "tokens":
        return Sort.TOKEN if before in _AUTHORITY else Sort.OPEN
    if noun == "token" and before in _OF_MODELS:
        return Sort.OPEN
    if noun in ("pass", "pw"):
        return Sort.TOKEN if not before or before in _LOGINS | _SERVICES else Sort.OPEN
    if noun == "auth" and before == "x":
        return Sort.SECRET  # a header's
    return _SORTS.get(noun, Sort.OPEN)


# Says that there is none, or where it is: a variable of a shell or of Hydra, a placeholder.
_NO_SECRET = re.compile(
    r"(?i:true|false|none|null|yes|no)|\*+|\$|\$[A-Z_][A-Z0-9_]*|\$\{(?:oc\.env:|env:)?[A-Za-z_]\w*\}|\{\{[\w. ]*\}\}|"
)
_NUMBER_OR_MARK = re.compile(
    r"[+-]?[0-9]{1,9}(?:\.[0-9]*)?(?:e[+-]?[0-9]+)?|<[^\s<>]*>|\[[A-Za-z_]\w*\]", re.IGNORECASE
)
_PATH = re.compile(
    r"(?:~|\.{1,2})?/[\w./~@-]*|[A-Za-z]:\\[\w.\\/~@ -]*|[\w./~@-]+\.(?:env|ini|json|key|pem|toml|txt|ya?ml)"
)
_USER_AND_PASSWORD = re.compile(r"[^\s:/]+:[^\s/][^\s]*")
_LEAST_RANDOM = 8
# serving_default2
_NUMBERED_WORDS = re.compile(r"[A-Za-z]+(?:_[a-z]+)+[0-9]{1,2}")
# What is longer is neither a number nor a word.
LONGEST_OPEN = 64


def is_random(value: str) -> bool:
    """Whether a value looks drawn by lot: too long for a word, or of letters and digits."""
    if len(value) > LONGEST_OPEN:
        return True
    has_digit, has_letter = any(map(str.isdigit, value)), any(map(str.isalpha, value))
    return len(value) >= _LEAST_RANDOM and has_digit and has_letter and not _NUMBERED_WORDS.fullmatch(value)


def is_secret(sort: Sort, value: str) -> bool:
    """Whether the value of a key whose name tells so much is to be hidden."""
    if sort is Sort.OPEN or (len(value) <= LONGEST_OPEN and _NO_SECRET.fullmatch(value)):
        return False
    if sort is Sort.TOKEN:
        return len(value) > LONGEST_OPEN or not _NUMBER_OR_MARK.fullmatch(value)
    if sort is Sort.KEPT_IN_A_FILE:
        return not _PATH.fullmatch(value)
    return sort is Sort.SECRET or is_random(value) or bool(_USER_AND_PASSWORD.match(value))


# Formats that those who give them out have published, with the least lengths of them: GitHub's list of secret scanning
# patterns (docs.github.com) and the rules of gitleaks. What follows the beginning is never an ordinary word.
SHAPES = re.compile(
    r"(?:(?<![A-Za-z0-9])|(?<=\s-[A-Za-z])|(?<=^-[A-Za-z]))(?:"  # or behind a short option
    r"hf_[A-Za-z0-9]{30,}|api_org_[A-Za-z0-9]{30,}"  # Hugging Face
    r"|sk-(?:proj|svcacct|admin|ant|or|lf)-[\w-]{20,}|sk-[A-Za-z0-9]{32,}"  # OpenAI, Anthropic, OpenRouter
    r"|gsk_[A-Za-z0-9]{40,}|xai-[A-Za-z0-9]{60,}|pplx-[A-Za-z0-9]{40,}|r8_[A-Za-z0-9]{37,}"
    r"|nvapi-[\w-]{40,}|wandb_v1_[\w-]{20,}"
    r"|gh[oprsu]_[A-Za-z0-9]{36,}|github_pat_\w{22,}"
    r"|gl(?:pat|ptt|dt|rt|cbt|ft|soat|agent)-[\w-]{20,}"
    r"|(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}(?![A-Za-z0-9])"  # Amazon
    r"|AIza[\w-]{35}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{28}"  # Google
    r"|xox[abeoprs]-(?=[A-Za-z-]{0,30}[0-9])[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{20,}"  # Slack
    r"|[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|SG\.[\w-]{22}\.[\w-]{43}"  # Stripe, SendGrid
    r"|pypi-AgE[\w-]{50,}|npm_[A-Za-z0-9]{36}|dckr_pat_[\w-]{27,}"
    r"|dapi[0-9a-f]{32}|dop_v1_[0-9a-f]{64}|hv[bs]\.[\w-]{24,}|tskey-[a-z]+-[\w-]{20,}"
    r"|AGE-SECRET-KEY-1[A-Z0-9]{58}"
    r"|(?:(?<![\w-])|(?<=-[A-Za-z]))eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*){0,3}"  # JWT, RFC 7519: {" in base64
    r"|(?<![/+])[A-Za-z0-9+/]{86}=="  # Azure storage
    r")"
    r"|(?<=hooks\.slack\.com/services/)[\w/]{20,}|(?<=/api/webhooks/)[0-9]{5,}/[\w-]{20,}|(?<=/bot)[0-9]{6,}:[\w-]{30,}"
    r"|-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----(?s:.*?)"
    r"(?:-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----|\Z)"
)

"""Names of keys and shapes of values that tell a secret.

HF_TOKEN  client_secret  db.password  apiKey         name a secret
eos_token  max_tokens  token_budget  password_file   do not
hf_...  ghp_...  AKIA...  eyJ...                     are one, wherever they stand
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache

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
    **dict.fromkeys(("credential", "credentials", "secrets", "cookie", "cookies", "pwd"), Sort.KEPT_IN_A_FILE),
    **dict.fromkeys(("sig", "signature", "auth"), Sort.RANDOM),
}
# Whatever comes before it in one word: PGPASSWORD, clientsecret.
_FUSED = re.compile(r"(.+?)(password|passwd|passphrase|secret|apikey)$")
# Before a key, a token, a pass; most keys are of a dictionary.
_AUTHORITY = _words("access api auth bearer oauth refresh secret session")
_KEYED = _AUTHORITY | _words("account admin encryption license service shared signing storage subscription")
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
    "language last latent learnable line mask mem memory middle modifier motion newline next obj output pad padding "
    "patch pause per placeholder pooling prefix prompt query rare readout reg register sep separator silence single "
    "special speech split start state stop sub suffix task text think timestamp tokenizer tool trigger unk unknown "
    "video vision visual word"
)
# Names of switches, such as --no-password.
_SWITCHES = _words("ask disable enable has hide ignore is no print require show skip")
# What may come after the name of a secret without making it something else: password2, token_value.
_TAILS = _words("b base plain plaintext raw str string text value")
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
# What is longer is neither a number nor a word.
LONGEST_OPEN = 64


def is_random(value: str) -> bool:
    """Whether a value looks drawn by lot: too long for a word, or of letters and digits."""
    if len(value) > LONGEST_OPEN:
        return True
    has_digit, has_letter = any(map(str.isdigit, value)), any(map(str.isalpha, value))
    return len(value) >= _LEAST_RANDOM and has_digit and has_letter


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
    r"(?<![A-Za-z0-9])(?:"
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
    r"|(?<![\w-])eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*){0,3}"  # JWT, RFC 7519: {" in base64
    r"|(?<![/+])[A-Za-z0-9+/]{86}=="  # Azure storage
    r")"
    r"|(?<=hooks\.slack\.com/services/)[\w/]{20,}|(?<=/api/webhooks/)[0-9]{5,}/[\w-]{20,}|(?<=/bot)[0-9]{6,}:[\w-]{30,}"
    r"|-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----(?s:.*?)"
    r"(?:-----END [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----|\Z)"
)

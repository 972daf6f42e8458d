"""Command lines lose their secrets and nothing else."""

import shlex
import string
import time
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from analyzers.command_lines import redacted_command
from analyzers.redaction import HIDDEN, redacted, redacted_url, redacted_values
from tests.support.tiers import quarters

COMMANDS = [
    line
    for line in (Path(__file__).parent / "support" / "training_commands.txt").read_text().splitlines()
    if not line.startswith("#")
]
# An ordinary word, one drawn by lot, and what base64 makes.
SECRETS = ("hunter", "5f00dbad5ec2e7", "Zx9/+k==")
# Of each line nothing but § is secret.
WITH_SECRETS = [
    "HF_TOKEN=§ python train.py --lr 0.1",
    "WANDB_API_KEY=§ AWS_SECRET_ACCESS_KEY=§ WANDB_PROJECT=x torchrun train.py",
    "env HUGGING_FACE_HUB_TOKEN=§ NCCL_DEBUG=INFO python train.py",
    "PGPASSWORD=§ MYSQL_PWD=§ DB_PASS=§ KAGGLE_KEY=§ OPENAI_KEY=§ python a.py",
    "AWS_SESSION_TOKEN=§ AWS_ACCESS_KEY_ID=§ NEPTUNE_API_TOKEN=§ CLEARML_API_SECRET_KEY=§ a",
    "python run_clm.py --token § --tokenizer_name gpt2 --max_new_tokens 5",
    "python run_clm.py --hub_token=§ --use_auth_token § --do_train",
    "python train.py --hf_token § --hf-token=§ --hfToken § --eos_token </s>",
    "python train.py --api-key § --api_key=§ --apikey § -api-key § --lr 1",
    "python train.py --wandb_key § --wandb-api-key=§ --key k --image_key jpg",
    "python train.py --client_secret § --secret § --secret-santa bob --passphrase §",
    "python train.py --db.password § --db.user me --storage.secret_access_key=§",
    "python train.py --password2=§ --token_value § --db-passwd § --password-file f",
    "python train.py +wandb.api_key=§ model.hf_token=§ ++a.b.client_secret=§ ~trainer.logger",
    "python train.py wandb/api_key=§ --set=db.password=§ --override model.hub.token=§",
    "python train.py --opts MODEL.HF_TOKEN § WANDB.API_KEY § MODEL.WEIGHTS a.pkl",
    "litgpt download meta-llama/Llama-2-7b-hf --access_token § --tokenizer_only false",
    "huggingface-cli login --token § --add-to-git-credential",
    "docker run -e HF_TOKEN=§ -eWANDB_API_KEY=§ --env=NGC_API_KEY=§ -e NCCL_DEBUG=INFO image",
    "sbatch --export=ALL,HF_TOKEN=§,LR=0.1 job.sh",
    "mpirun -x HF_TOKEN=§ -x PATH python train.py",
    "kubectl create secret generic s --from-literal=password=§ --dry-run=client",
    "tracer record --gpus 4 -- torchrun train.py --api-key § --lr 1",
    'bash -c "HF_TOKEN=§ torchrun --nproc_per_node=8 train.py --lr 1"',
    "bash -lc 'export WANDB_API_KEY=§ && python train.py --api-key § --name \"a b\"; echo done'",
    'srun --container-image=x bash -c "cd /w && python train.py --hf_token § > log 2>&1"',
    "sbatch --wrap 'HF_TOKEN=§ srun python train.py --lr 1'",
    'sbatch --wrap="HF_TOKEN=§ python train.py --lr 1"',
    'ssh node1 "HF_TOKEN=§ torchrun train.py --lr 1"',
    "sh -c 'bash -c \"HF_TOKEN=§ python a.py --lr 1\" && echo done'",
    "curl --header 'X-Auth: §' -H 'X-Api-Key:§' -H 'Content-Type: application/json' host",
    "curl -H 'Authorization: Bearer §' -H 'authorization: §' -H 'Cookie: §' -H 'Accept: */*' host",
    "git -c http.extraheader='Authorization: Basic §' clone https://github.com/a/b",
    'python a.py --header="Private-Token: §" --extra-headers X-Vault-Token=§',
    'python train.py --config \'{"api_key": "§", "lr": 0.1, "o": {"db.password" : "§", "n": 1}}\'',
    "python train.py --config=\"{'hf_token': '§', 'eos_token': '</s>'}\"",
    "python train.py 'logger={api_key: §, project: x}' '+env={HF_TOKEN: §}'",
    "python -c \"import wandb; wandb.login(key='k', api_key='§'); train(lr=1)\"",
    "python a.py --headers \"{'X-Auth': '§', 'Authorization': 'Bearer §', 'Accept': 'text/html'}\"",
    "python train.py --storage 'AccountName=a;AccountKey=§;EndpointSuffix=x'",
    "aws configure set aws_secret_access_key § --profile x",
    "csh -c 'setenv HF_TOKEN § ; python train.py --lr 1'",
    "python train.py --creds § --master-key § --credentials creds.json",
    "python -c \"import subprocess; subprocess.run(['a', '--api-key', '§', '--lr', '1'])\"",
]
# Wherever a user and a password stand in a URL, and its query; what is left of each.
URLS = {
    "postgres://u:§@h:5432/db": "postgres://***@h:5432/db",
    "redis://:§@h": "redis://***@h",
    "https://§@github.com/a/b.git": "https://***@github.com/a/b.git",
    "git+https://oauth2:§@gitlab.com/a": "git+https://***@gitlab.com/a",
    "mysql+pymysql://u:§@h/db": "mysql+pymysql://***@h/db",
    "mongodb+srv://u:§@h/db": "mongodb+srv://***@h/db",
    "s3://u:§@h/b": "s3://***@h/b",
    "https://h/b?X-Amz-Signature=§&a=b": "https://h/b?***",
    "https://hooks.slack.com/services/T00000/B00000/§": "https://hooks.slack.com/services/***",
}
WORD = "aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA3bC5dE7fG9hJ1kL3mN5pQ7rS9tU1vW3xY5zA7bC9"
# Put together here, so that no scanner takes them for real.
SHAPED = [
    "hf_" + WORD[:34], "api_org_" + WORD[:34], "sk-" + WORD[:48], "sk-proj-" + WORD[:20] + "-_" + WORD[:30],
    "sk-ant-" + "api03-" + WORD[:40], "gsk_" + WORD[:52], "nvapi-" + WORD[:64], "ghp_" + WORD[:36], "gho_" + WORD[:36],
    "github_pat_" + WORD[:22] + "_" + WORD[:40], "glpat-" + WORD[:20], "AKIA" + "Z2" * 8, "ASIA" + "Q7" * 8,
    "AIza" + WORD[:35], "xoxb-" + "1234567890-" + WORD[:24], "xoxp-" + WORD[:24], "npm_" + WORD[:36],
    "eyJ" + WORD[:30] + ".eyJ" + WORD[:30] + "." + WORD[:40], "SG." + WORD[:22] + "." + WORD[:43],
    "-----BEGIN RSA PRIVATE KEY-----\n" + WORD + "\n" + WORD + "\n-----END RSA PRIVATE KEY-----",
]  # fmt: skip


def words_of(line: str, secret: str) -> list[str]:
    return [word.replace("§", secret) for word in shlex.split(line)]


def test_there_are_many_commands():
    assert len(COMMANDS) >= 200 and len(set(COMMANDS)) == len(COMMANDS)


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_without_secrets_stay_as_they_are(line):
    words = shlex.split(line)
    assert redacted_command(words) == words
    assert redacted(line) == line


@pytest.mark.parametrize("line", WITH_SECRETS)
@pytest.mark.parametrize("secret", SECRETS)
def test_secrets_go_and_all_else_stays(line, secret):
    shown = redacted_command(words_of(line, secret))
    assert shown == words_of(line, "***")
    assert redacted_command(shown) == shown


@pytest.mark.parametrize(("url", "left"), URLS.items())
def test_urls_of_all_schemes_lose_who_asks(url, left):
    url = url.replace("§", "hunter2")
    assert redacted_command(["a.py", url, f"--db={url}", "--db", url]) == ["a.py", left, f"--db={left}", "--db", left]
    assert redacted_command(["bash", "-c", f'DB="{url}" python a.py'])[2] == f'DB="{left}" python a.py'
    assert redacted(f"cannot open {url}, twice") in (f"cannot open {left}, twice", f"cannot open {left} twice")


@pytest.mark.parametrize("secret", SHAPED)
def test_what_has_a_secrets_shape_is_hidden_wherever_it_stands(secret):
    words = [
        "a.py",
        secret,
        f"-k{secret}",
        f"--name={secret}",
        "--name",
        f"x {secret} y",
        f"a:{secret}",
        f'{{"n": ["{secret}"]}}',
    ]
    assert redacted_command(words) == [word.replace(secret, "***") for word in words]
    assert redacted(f"denied ({secret}).") == "denied (***)."


@pytest.mark.parametrize(
    "word",
    [
        "hf_transfer", "hf_hub_download_of_a_very_long_function_name", "sk-learn-contrib-and-more-words-than-that",
        "ghp_short", "AKIAshort", "eyJzdGFnZSI6IDN9", "xoxo-hugs-and-kisses", "glpat-x", "nvapi-client", "SG.1.2",
        "3fa85f64-5717-4562-b3fc-2c963f66afa6", "da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "-----BEGIN CERTIFICATE-----",
    ],
)  # fmt: skip
def test_ordinary_words_have_no_secrets_shape(word):
    assert redacted_command([word, f"--name={word}"]) == [word, f"--name={word}"]


@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("HF_TOKEN='§' python a.py", "HF_TOKEN='***' python a.py"),
        ('HF_TOKEN="§ x" python a.py', 'HF_TOKEN="***" python a.py'),
        ("python a.py --api-key '§ x' --n 'a b'", "python a.py --api-key '***' --n 'a b'"),
        ("python a.py --token §; echo $HF_TOKEN", "python a.py --token ***; echo $HF_TOKEN"),
        ("HF_TOKEN=$(cat /run/token) python a.py # can't", "HF_TOKEN=$(cat /run/token) python a.py # can't"),
        (r"HF_TOKEN=§\ x python a.py --n a\ b", r"'HF_TOKEN=***' python a.py --n a\ b"),
        ('python a.py --c \'{"api_key": "§"}\'', 'python a.py --c \'{"api_key": "***"}\''),
        ("a --password \\\n  § --lr 1 | tee --token", "a --password \\\n  *** --lr 1 | tee --token"),
    ],
)
def test_scripts_are_read_as_a_shell_does(script, shown):
    assert redacted_command(["bash", "-e", "-c", script.replace("§", "hunter")]) == ["bash", "-e", "-c", shown]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--password", "correct horse battery"], ["--password", "***"]),
        (["--secret=a b", "-n", "5"], ["--secret=***", "-n", "5"]),
        (["DB_PASSWORD=a 'b' \"c\""], ["DB_PASSWORD=***"]),
        (["--api-key", "-Zx93kQ01"], ["--api-key", "***"]),
        (["--api-key", "--lr", "1"], ["--api-key", "--lr", "1"]),
        (["--header", "X-Auth: a b; c"], ["--header", "X-Auth: ***"]),
        (["Cookie: a=b; c=d"], ["Cookie: ***"]),
        (["--password=python is my favourite"], ["--password=***"]),
        (["--auth", "me:hunter", "--auth", "basic"], ["--auth", "***", "--auth", "basic"]),
    ],
)
def test_a_secret_may_hold_anything(words, shown):
    assert redacted_command(words) == shown


SECRET_TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=6, max_size=40)


@given(secret=SECRET_TEXTS, command=st.sampled_from(COMMANDS), way=st.integers(0, 5), data=st.data())
@example(secret="a'b\"c;d e", command=COMMANDS[0], way=0, data=None)
def test_no_random_secret_survives_in_any_place(secret, command, way, data):
    assume(not secret.startswith(("-", "$", "{{")))
    words = shlex.split(command)
    places = [at for at in range(1, len(words) + 1) if not words[at - 1].startswith("-")]
    at = data.draw(st.sampled_from(places)) if data is not None else len(words)
    names = (
        ["--api-key"],
        ["HF_PASSWORD="],
        ["--db.password="],
        ["+a.client_secret="],
        ["--wandb-api-key"],
        ["--x=secret="],
    )
    *option, prefix = names[way] if names[way][-1].endswith("=") else [*names[way], ""]
    hidden = redacted_command([*words[:at], *option, prefix + secret, *words[at:]])
    assert hidden == [*words[:at], *option, f"{prefix}***", *words[at:]]


NOUNS = ("auth", "bearer", "cookie", "credential", "jwt", "key", "pass", "pwd", "secret", "sig", "token")
PLAIN = st.text(string.ascii_lowercase, min_size=4, max_size=12).filter(
    lambda word: not any(noun in word for noun in NOUNS)
)
NUMBERS = st.integers(-(10**9), 10**9).map(str) | st.floats(allow_nan=False).map(str)
VALUES = PLAIN | NUMBERS | st.lists(PLAIN, min_size=2, max_size=4).map("/".join) | st.just("a b, c; (d) [e] 'f'")
NAMES = st.lists(PLAIN, min_size=1, max_size=3).flatmap(
    lambda parts: st.sampled_from("-_.").map(lambda by: by.join(parts))
)
WORDS = (
    VALUES
    | NAMES.map("--{}".format)
    | st.builds("--{}={}".format, NAMES, VALUES)
    | st.builds("{}={}".format, NAMES, VALUES)
)


@given(st.lists(WORDS, max_size=12))
def test_random_words_that_are_no_secrets_always_stay(words):
    assert redacted_command(words) == words


PIECES = [
    "a", "a.", "A", "aB", "_", "-", "--a ", "://", "://x:y", "s://u:p@", "a:/", "https://a?b ", "s://a#", "s://a?b)",
    "@", "token=", "token:", "token: x ", "a=", "token=a,", "token=[", "signature=a ", "pwd='/a ", '{"token": "',
    "\\", '\\"', "'", '"', "-----BEGIN PRIVATE KEY-----", "eyJ", "-eyJ", "sk-", "hf_", "SG.", "A/+", "xoxb-",
    "bearer ", "cookie:", "authorization: ", "--token ", "$(", "${", "{{", "<", "[", " ", "\n", "a ", "HF_TOKEN='a ",
    "sh -c ", "x-amz-", "a]=",
]  # fmt: skip


def cpu_s(text: str) -> float:
    before = time.process_time()
    redacted(text)
    redacted_url(text)
    redacted_command([text, f"--x={text}", "bash", "-c", text, *text.split(" ")])
    return time.process_time() - before


@pytest.mark.parametrize("piece", quarters(PIECES))
def test_no_text_takes_longer_than_its_length(piece):
    """Were a pattern to look at each part of it anew, this would take it minutes."""
    assert cpu_s(piece * (40_000 // len(piece))) < 10


def test_a_long_text_of_all_is_redacted():
    assert cpu_s("".join(piece * (4_000 // len(piece)) for piece in PIECES)) < 40


def test_what_no_command_is_as_long_or_deep_as_is_hidden_at_once():
    long = ["train.py", "a 'b' " * 100_000, "--lr", "0.1"]
    assert redacted_command(long) == ["train.py", HIDDEN, HIDDEN, HIDDEN]
    assert redacted("word " * 10**6).endswith(HIDDEN)
    assert redacted_command(["header=" * 3000]) == ["header=" * 3000]
    deep = {}
    for _ in range(900):
        deep = {"a": deep}
    assert HIDDEN in str(redacted_values(deep))

"""The templates of evaluation tasks are those of Jinja2 with Python's values: the same bytes, or a refusal.

The program tests/support/tasks_tool.cpp answers one JSON line for each line that it gets.
"""
import ast
import functools
import json
import pathlib
import random
import re
import subprocess

import pytest
from conftest import find_program

jinja2 = pytest.importorskip("jinja2")
pytest.importorskip("jinja2.meta")


def ask(command, lines):
    """Answers of tasks_tool, one for each line."""
    program = find_program("tasks_tool").path
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([program, command], input=text.encode(), capture_output=True, check=True, timeout=300)
    answers = [json.loads(line) for line in done.stdout.decode().split("\n") if line]
    assert len(answers) == len(lines)
    return answers


def lm_eval_environment():
    """Jinja2 with the settings of lm_eval's utils.py."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    environment.filters["regex_replace"] = lambda string, pattern, repl, count=0: re.sub(pattern, repl, string, count=count)
    return environment


def compare(cases):
    """Compares (template, row) with Jinja2. Returns how many were rendered, and how many both or only ours refused."""
    compiled = functools.cache(lm_eval_environment().from_string)
    rendered, both_refused, only_we_refused = 0, 0, []
    for (source, row), ours in zip(cases, ask("render", [{"template": s, "row": r} for s, r in cases])):
        try:
            theirs = compiled(source).render(**row)
        except Exception as error:  # templates may raise anything
            assert "error" in ours, f"{source!r} with {row!r}: Jinja2 raises {error!r}, we print {ours}"
            both_refused += 1
            continue
        if "error" in ours:
            only_we_refused.append((source, row, ours["error"]))
        else:
            assert ours["text"] == theirs, f"{source!r} with {row!r}"
            rendered += 1
    return rendered, both_refused, only_we_refused


# ---- lm_eval's own templates ----------------------------------------------------------------------------------------

FIELDS = ("doc_to_text", "doc_to_target", "doc_to_choice", "description", "gen_prefix", "doc_to_decontamination_query")


def templates_of_lm_eval():
    """Every template of the task files of the installed lm_eval."""
    yaml = pytest.importorskip("yaml")
    tasks = pytest.importorskip("lm_eval.tasks")

    class Loader(yaml.CSafeLoader):
        pass

    Loader.add_multi_constructor("!", lambda loader, suffix, node: None)

    def texts(value):
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            for member in value.values():
                yield from texts(member)
        elif isinstance(value, list):
            for member in value:
                yield from texts(member)

    found = set()
    for path in sorted(pathlib.Path(tasks.__file__).parent.rglob("*")):
        if not (path.suffix in (".yaml", ".yml") or path.name.endswith("_yaml")) or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if "{{" not in text and "{%" not in text:
            continue
        try:
            config = yaml.load(text, Loader=Loader)
        except yaml.YAMLError:
            continue
        if isinstance(config, dict):
            for field in FIELDS:
                found.update(texts(config.get(field)))
            few_shot = config.get("fewshot_config")
            if isinstance(few_shot, dict):
                for field in FIELDS:
                    found.update(texts(few_shot.get(field)))
    return sorted(text for text in found if "{{" in text or "{%" in text)


TEXTS = ["", "a", " two words ", "No", "Ünï - “quoted” 'single' \"double\"\n", "line\r\nline", "Straße ΟΔΟΣ", "_", "A. x\nB. y",
         "é👍 z\u00a0", "3", "0", "-1.5", "tab\there", "[title] brackets [x]", "{{ braces }}", "it's \\ back"]


def draw_value(draw, depth=0):
    kind = draw.randrange(9 if depth < 2 else 6)
    if kind < 3:
        return draw.choice(TEXTS)
    if kind == 3:
        return draw.choice([0, 1, 2, 3, -1, 17])
    if kind == 4:
        return draw.choice([True, False, None])
    if kind == 5:
        return draw.choice([0.5, 1e-7, 1e16, 123456.789, -0.0, 2.0])
    if kind < 8:
        return [draw_value(draw, depth + 1) for _ in range(draw.randrange(5))]
    return {draw.choice(["text", "label", "a", "index", "1"]): draw_value(draw, depth + 1) for _ in range(3)}


def draw_row(draw, names):
    """A row with most of the names; now and then one is missing, or its value is of a strange type."""
    row = {}
    for name in names:
        if draw.random() < 0.03:
            continue
        kind = draw.random()
        if kind < 0.5:
            row[name] = draw.choice(TEXTS)
        elif kind < 0.7:
            row[name] = [draw.choice(TEXTS) for _ in range(draw.choice([2, 4, 4, 5]))]
        elif kind < 0.8:
            row[name] = {"text": [draw.choice(TEXTS) for _ in range(4)], "label": list("ABCD")}
        else:
            row[name] = draw_value(draw)
    return row


def test_templates_of_lm_eval_give_the_bytes_of_jinja():
    templates = templates_of_lm_eval()
    environment = lm_eval_environment()
    draw = random.Random(22)
    cases = []
    for source in templates:
        try:
            names = sorted(jinja2.meta.find_undeclared_variables(environment.parse(source)))
        except jinja2.TemplateSyntaxError:
            names = []
        cases += [(source, draw_row(draw, names)) for _ in range(6)]
    rendered, both, only_ours = compare(cases)
    unknown = {source for source, _, error in only_ours if "this form" in error}
    print(f"{len(templates)} templates, {len(cases)} documents: {rendered} rendered, {both} refused by both, "
          f"{len(only_ours)} only by us")
    assert not unknown, sorted(unknown)[:5]
    assert len(templates) > 1500 and rendered > len(cases) / 3


# ---- Edge cases ------------------------------------------------------------------------------------------------------

ROW = {"q": "What?", "n": 3, "z": 0, "f": 0.1, "t": True, "no": None, "l": ["b", "A", "c"], "e": [], "s": " Hello World ",
       "d": {"text": ["x", "y"], "label": ["A", "B"], "items": 1, "k v": 2}, "u": "ñé👍 ǆ ß ﬁ İ ΑΣ ", "nested": [[1, 2], [3, [4]]],
       "quotes": "it's \"x\"", "big": 9007199254740993, "floats": [1.0, 0.1, 1e22, 1e-5, -0.0, 1.5e300], "w": "a  b\tc\nd"}

EDGES = """
{{ q }}|{{q}}|{{- q -}}| {{ q }} x|  {{- q }} |  {{+ n }}|{{ -n }}|{{ - n - -1 }}|{{ n ** 2 ** 3 }}|{{ -2 ** 2 }}|{{ 7 // 2 }},{{ -7 // 2 }},{{ -7 % 3 }},{{ 7 % -3 }}
{{ 7 / 2 }}|{{ 7.5 // 2 }}|{{ -7.5 % 2 }}|{{ 1 / 3 }}|{{ 2 ** -1 }}|{{ 2 ** 0.5 }}|{{ 1e22 }}|{{ 1.0 }}|{{ 1e-5 }}|{{ 123456789012345678.0 }}|{{ 1_000 }}|{{ 0 }}
{{ [1, 'a', "it's", 'q"', 'it\\'s "x"', none, true, 1.5, (1,), (), (1, 2), {'a': 1, 2: [3]}] }}|{{ [] }}|{{ {} }}|{{ (1) }}|{{ 1, 2 }}|{{ u.split() }}
{{ l[0] }}{{ l[-1] }}{{ l[1:] }}{{ l[::-1] }}{{ l[:-1] }}{{ l[5:] }}{{ l[-5:2] }}{{ s[1:4] }}{{ s[::-2] }}{{ u[0] }}{{ u[-2] }}{{ u[2:5] }}{{ u[5:2:-1] }}
{{ d.text[0] }}{{ d['text'] }}{{ d.label.index('B') }}{{ d['items'] }}{{ d['k v'] }}|{{ d.get('zz', 5) }}|{{ d.get('zz') }}|{{ d.keys() | list }}|{{ d.items() | list }}|{{ d | length }}
{{ d.items }}|{{ d.zz }}|{{ l.zz }}|{{ l[7] }}|{{ missing }}|{{ missing.x }}|{{ n.x }}|{{ no.x }}|{{ l['a'] }}|{{ q.upper }}
{{ s.strip() }}|{{ s.lstrip() }}|{{ s.rstrip() }}|{{ s.strip(' Hd') }}|{{ s.upper() }}|{{ s.lower() }}|{{ 'hello wORLD'.capitalize() }}|{{ "they're bill's".title() }}|{{ u.upper() }}|{{ u.lower() }}|{{ u.title() }}|{{ u.capitalize() }}
{{ w.split() }}|{{ w.split(' ') }}|{{ w.split(' ', 1) }}|{{ w.split(none, 1) }}|{{ w.rsplit(' ', 1) }}|{{ w.splitlines() }}|{{ ''.split() }}|{{ ''.split(',') }}|{{ 'a,b,,c'.split(',') }}|{{ 'a b'.split(sep=' ') }}|{{ 'abc'.split('') }}
{{ s.replace('l', 'L') }}|{{ s.replace('l', 'L', 1) }}|{{ 'abc'.replace('', '-') }}|{{ s.find('o') }}|{{ s.find('zz') }}|{{ s.rfind('o') }}|{{ s.index('W') }}|{{ s.index('zz') }}|{{ s.count('l') }}|{{ u.find('👍') }}|{{ s.find('o', 6) }}|{{ s.find('o', -4, -1) }}
{{ s.startswith(' H') }}|{{ s.endswith(('x', 'd ')) }}|{{ 'x'.join(l) }}|{{ ','.join([1]) }}|{{ '{} {}'.format(n, q) }}|{{ '{1}{0}{x}'.format(n, q, x=2) }}|{{ '%s-%d' % (q, n) }}|{{ '%s' % q }}|{{ '%.3f' % f }}|{{ 'ab'.partition('b') }}|{{ 'x'.isdigit() }}|{{ '12'.isdigit() }}|{{ 'aXbX'.rpartition('X') }}
{{ n|string }}|{{ '3'|int + 1 }}|{{ '3.7'|int }}|{{ 'x'|int }}|{{ 'x'|int(5) }}|{{ ' 4 '|int }}|{{ '0x1f'|int(0, 16) }}|{{ 3.9|int }}|{{ '2.5'|float }}|{{ 'x'|float }}|{{ none|int }}|{{ true|int }}|{{ '1_0'|int }}|{{ '١٢'|int }}
{{ s|trim }}|{{ s|lower }}|{{ s|upper }}|{{ 'aBC'|capitalize }}|{{ "they're x-y (z) [w]"|title }}|{{ s|replace('l', 'L') }}|{{ s|replace('l', 'L', 1) }}|{{ 'xxaxx'|trim('x') }}|{{ n|upper }}
{{ l|join }}|{{ l|join(', ') }}|{{ l|length }}|{{ l|count }}|{{ l|first }}|{{ l|last }}|{{ e|first }}|{{ q|list }}|{{ l|sort }}|{{ l|sort(reverse=true) }}|{{ l|sort(case_sensitive=true) }}|{{ l|reverse|list }}|{{ q|reverse }}|{{ [3,1,2]|min }}|{{ [3,1,2]|max }}|{{ l|max }}|{{ e|max }}|{{ [1,2.5]|sum }}|{{ [1,1,'a','A']|unique|list }}
{{ l|map('upper')|list }}|{{ l|map('upper')|join('-') }}|{{ l|map('replace', 'b', 'x')|list }}|{{ [{'a': 1}, {'a': 2}]|map(attribute='a')|list }}|{{ [d]|map(attribute='text.0')|list }}|{{ [1,0,2]|select|list }}|{{ [1,2,3]|select('odd')|list }}|{{ [1,2,3]|reject('odd')|list }}|{{ [{'a': 1}, {'a': 2}]|selectattr('a', 'equalto', 2)|list }}|{{ l|map('upper') }}|{{ l|map('length')|sum }}
{{ missing|default('x') }}|{{ ''|default('x') }}|{{ ''|default('x', true) }}|{{ q|default('x') }}|{{ -3|abs }}|{{ 2.5|round }}|{{ 3.5|round }}|{{ 2.675|round(2) }}|{{ 2.1|round(0, 'ceil') }}|{{ 2.19|round(1, 'floor') }}|{{ n|round }}|{{ l|tojson }}|{{ d|tojson }}|{{ u|tojson }}|{{ "<a> & 'b'"|tojson }}|{{ '%s!'|format(q) }}|{{ floats|tojson }}
{{ q|regex_replace('[A-Z]', '<x>') }}|{{ 'abc'|regex_replace('x*', '-') }}|{{ 'aXbX'|regex_replace('(\\\\w)X', '\\\\1') }}|{{ w|regex_replace('\\\\s+', ' ') }}|{{ 'a.b'|regex_replace('.', '') }}|{{ '[title] a [b]'|regex_replace('\\\\[.*?\\\\]', '') }}|{{ 'aaa'|regex_replace('a', 'b', 2) }}|{{ 'x'|regex_replace('(', '') }}
{{ n is defined }}|{{ missing is defined }}|{{ missing is undefined }}|{{ no is none }}|{{ n is none }}|{{ q is string }}|{{ n is number }}|{{ d is mapping }}|{{ l is iterable }}|{{ l is sequence }}|{{ n is odd }}|{{ n is even }}|{{ n is not none }}|{{ n is divisibleby 3 }}|{{ n is eq 3 }}|{{ n is gt(2) }}|{{ 'a' is in l }}|{{ t is true }}|{{ t is boolean }}|{{ n is integer }}|{{ f is float }}|{{ 'A' is upper }}|{{ not n is none }}|{{ n is defined and q is string }}
{{ n == 3 }}|{{ n == 3.0 }}|{{ t == 1 }}|{{ 1 < 2 < 3 }}|{{ 1 < 2 > 3 }}|{{ 'a' < 'b' }}|{{ [1, 2] < [1, 3] }}|{{ 1 < 'a' }}|{{ 'b' in l }}|{{ 'x' not in l }}|{{ 'Wh' in q }}|{{ 'text' in d }}|{{ 1 in q }}|{{ (1, 2) == [1, 2] }}|{{ big == 9007199254740992.0 }}|{{ not n }}|{{ n and q }}|{{ z or q }}|{{ n != 3 or 'x' }}|{{ not not n }}
{{ 'a' if n else 'b' }}|{{ 'a' if z else 'b' }}|{{ 'a' if z }}|{{ 'a' if n }}|{{ 1 if z else 2 if e else 3 }}|{{ ('a' if n else 'b') ~ 'c' }}|{{ 'x' ~ n ~ none ~ l }}|{{ 'a' 'b' }}|{{ 'a' + 'b' }}|{{ 'a' * 3 }}|{{ 2 * [1] }}|{{ [1] + [2] }}|{{ 'a' + 1 }}|{{ n + q }}|{{ 1 / 0 }}|{{ 1 // 0 }}
{% if n == 3 %}three{% elif n %}some{% else %}none{% endif %}|{% if z %}a{% elif e %}b{% else %}c{% endif %}|{%- if n -%} x {%- endif -%} y|{% if no is not none and no|length > 0 %}x{% endif %}|{% if n %}{% if z %}a{% else %}b{% endif %}{% endif %}
{% for x in l %}{{ loop.index }}:{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}|{% for x in e %}a{% else %}empty{% endfor %}|{% for a, b in nested %}{{ a }}-{{ b }};{% endfor %}|{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}|{% for x in l if x != 'A' %}{{ loop.index0 }}{{ x }}{{ loop.length }}{{ loop.first }}{{ loop.revindex }}{% endfor %}|{% for i in range(3) %}{{ i }}{% endfor %}|{% for i in range(5, 0, -2) %}{{ i }}{% endfor %}|{% for c in q %}{{ c }}.{% endfor %}|{% for k in d %}{{ k }}{% endfor %}|{% for x in n %}{% endfor %}
{% set x = 5 %}{{ x }}|{% set a, b = 1, 2 %}{{ a + b }}|{% set x = 1 %}{% for i in l %}{{ x }}{% set x = 2 %}{% endfor %}{{ x }}|{% if n %}{% set y = 1 %}{% endif %}{{ y }}|{% set ns = namespace(c=0) %}{% for i in l %}{% set ns.c = ns.c + 1 %}{% endfor %}{{ ns.c }}|{% set b %} block {{ n }} {% endset %}[{{ b }}]|{% for i in l %}{{ loop.previtem }}{% endfor %}|{% for i in l %}{% for j in l %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}|{{ loop }}|{% set loop = 1 %}
{# comment #}x|a {#- c -#} b|{% raw %}{{ q }}{% endraw %}|{%- raw -%} x {%- endraw -%} y|{{ '{{' }}|{{ "}}" }}|{{ {'a': {'b': 1}} }}|{{ {'a': 1}['a'] }}|{{ [[1]][0][0] }}|{{ l.0 }}|{{ "a\\nb\\t\\x41\\u00e9\\\\" }}|{{ 'a\\qb' }}
a\nb\n|{{ q }}\n\n|\r\n{{ q }}\r|{{ q }}\t|{%+ if n +%} x {%+ endif +%}|{{ 1 }}{{ 2 }}|}}|{ {|{%|{{|{{ q|{% if n %}|{% endif %}|{{ q }|{{ }}|{{ 1 2 }}|{{ q.}}|{{ [1 }}|{{ q | nofilter }}|{{ q is notest }}|{% block x %}{% endblock %}|{{ f(1) }}|{{ range }}|{{ range(3) }}|{{ range(3)|list }}|{{ dict(a=1) }}
{{ quotes }}|{{ [quotes] }}|{{ floats }}|{{ 0.1 + 0.2 }}|{{ 1e100 }}|{{ 5e-324 }}|{{ 1.7976931348623157e308 }}|{{ 100000.0 * 1e11 }}|{{ 1e15 + 0.3 }}|{{ ['\\x00\\x7f\\xa0\\u200b', '\\u2028', 'é'] }}|{{ nested }}|{{ nested[1][1][0] }}|{{ big + 1 }}|{{ big * big }}|{{ 'a' * 100000000000 }}|{{ range(1000000000)|length }}
{{ (l|map('upper')|list)[0] }}|{{ l|map('upper')|list|first }}|{% set g = l|map('upper') %}{{ g|join }}{{ g|join }}|{{ d.values()|list|length }}|{{ q.strip().lower().replace('w', 'W')[1:] }}|{{ (q ~ s).strip()|length }}|{{ q[:-1] ~ ':' }}|{{ l[n - 1] }}|{{ l[z] }}|{{ l[t] }}|{{ l[f] }}|{{ 'yes' if t else 'no' }}|{{ ['no', 'yes'][t] }}|{{ "ABCD"[z] }}|{{ 1 if n > 2 and not z else 0 }}
"""


def test_edge_cases_give_the_bytes_of_jinja_or_are_refused():
    cases = []
    for line in EDGES.strip().split("\n"):
        for source in split_cases(line):
            cases.append((source.replace("\\n", "\n") if "{{" not in source else source, ROW))
    rendered, both, only_ours = compare(cases)
    print(rendered, both, [(source, error) for source, _, error in only_ours])
    assert rendered > 250
    # What only we refuse is what docs/tasks.md lists.
    assert len(only_ours) <= 25, [(source, error) for source, _, error in only_ours]


def split_cases(line):
    """Splits at | outside of tags."""
    cases, depth, current = [], 0, ""
    for part in re.split(r"(\{\{|\}\}|\{%|%\}|\|)", line):
        if part in ("{{", "{%"):
            depth += 1
        elif part in ("}}", "%}"):
            depth = max(0, depth - 1)
        if part == "|" and depth == 0:
            cases.append(current)
            current = ""
        else:
            current += part
    return cases + [current]


def test_every_character_has_pythons_cases_and_classes():
    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    template = ("{% for c in l %}{{ c.upper() }},{{ c.lower() }},{{ c.title() }},{{ ('x' ~ c ~ 'Y').title() }},{{ c.isspace() }},"
                "{{ ('AΣ' ~ c).lower() }},{{ ('aΣ' ~ c ~ 'a').lower() }},{{ c.isupper() }},{{ c.islower() }},{{ c.isdigit() }}\n{% endfor %}")
    import unicodedata
    version = tuple(map(int, unicodedata.unidata_version.split(".")))
    if version > (15, 1, 0):
        pytest.skip(f"Python's Unicode {unicodedata.unidata_version} is newer than that of python_case_tables.h")
    if version < (15, 0, 0):  # these have been small letters since then
        characters = [c for c in characters if c not in "\u10fc\ua7f2\ua7f3\ua7f4\uab69"]
    # Unassigned characters may have got a case in a newer Unicode.
    characters = [c for c in characters if unicodedata.category(c) != "Cn" and not ("\u3400" <= c < "\ua000" or "\uac00" <= c < "\ud7b0" or c >= "\U00020000")]
    rows = [{"l": characters[i:i + 5000]} for i in range(0, len(characters), 5000)]
    rendered, both, only_ours = compare([(template, row) for row in rows])
    assert rendered == len(rows), only_ours[:1]


def test_lists_are_printed_as_python_prints_them_and_read_back():
    draw = random.Random(5)
    values = [draw_value(draw) for _ in range(2000)]
    rendered, _, only_ours = compare([("{{ v }}", {"v": value}) for value in values])
    assert rendered == len(values), only_ours[:1]
    texts = [repr(value) for value in values]
    for value, text, ours in zip(values, texts, ask("literal", [{"text": text} for text in texts])):
        assert ours["repr"] == repr(ast.literal_eval(text)), (value, ours)


LITERALS = ["[1, 2", "['a' 'b']", "('x')", "('x',)", "1, 2", "", "x", "[x]", "1 + 2j", "{1, 2}", "{'a': 1}", "-5", "- 5", "+1.5", "--1", "1_0", "0x1F",
            "01", "'a\\nb'", "'''a\nb'''", "'a\nb'", "\"it's\"", "r'\\n'", "b'x'", "u'x'", "None", "True", "true", " [1]", "[1]\n", "[\n1,\n2]", "[1]x",
            "'\\u00e9'", "'\\ud800'", "1e5", ".5", "5.", "1e", "['a', ]", "[,]", "()", "[]", "{}", "'a", "[None, [True, (1,)]]", "a.b", "[1][0]", "'a' * 2",
            "# x", "[1] # x", "'\\x4'", "99999999999999999999"]


def test_literals_are_read_as_python_reads_them():
    for text, ours in zip(LITERALS, ask("literal", [{"text": text} for text in LITERALS])):
        try:
            theirs = repr(ast.literal_eval(text))
        except (SyntaxError, ValueError):
            theirs = None
        assert "error" in ours or ours["repr"] == theirs, (text, ours, theirs)


REGEXES = [r"\[.*?\]", r"\s+", r"(\w+) (\w+)", r"^a|b$", r"[^a-z]", r"\d{2,}", r"x{,2}", r"a{2", r"(?P<n>a)", r"(?i)a", r"\Aa", r"[[]", r"[\w-]+", r"[]a]", r"\bq",
           r"(a)|(b)", r"", r"x*", r"a*?", r"(?<=a)b", r"(?!a)\w", r".", r"\.", r"é", r"\S", r"[\s\d]", r"\u00e9", r"a++", r"(a", r"*", r"\p{L}"]


def test_regex_replace_is_re_sub_or_refuses():
    texts = ["", "aab [x] b", "a1 22 333\nb\u00a0c", "éa É qa q", "xxx", "a]b[c-d"]
    lines = [{"text": t, "pattern": p, "by": by, "count": count}
             for t in texts for p in REGEXES for by in ("", "-", r"<\g<0>>", r"\1", r"\n") for count in (0, 1)]
    refused = 0
    for line, ours in zip(lines, ask("regex", lines)):
        try:
            theirs = re.sub(line["pattern"], line["by"], line["text"], count=line["count"])
        except (re.error, IndexError):
            assert "error" in ours, line
            continue
        refused += "error" in ours
        assert "error" in ours or ours["text"] == theirs, (line, ours, theirs)
    assert refused < len(lines) / 3, refused


def test_samples_are_those_of_pythons_random():
    draw = random.Random(1)
    lines = []
    for seed in (0, 1, 1234, 2**31, 2**32 + 5, 2**64 - 1, 42):
        calls = [[n, draw.randrange(min(n, 60) + 1)] for n in (1, 5, 21, 22, 85, 86, 277, 278, 1000, 40000, 14042, 3, 1_000_000)]
        lines.append({"seed": seed, "calls": calls * 3})
    for line, ours in zip(lines, ask("sample", lines)):
        generator = random.Random(line["seed"])
        assert ours == [generator.sample(range(n), k) for n, k in line["calls"]]

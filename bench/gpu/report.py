"""The table of gpu_check's results, as Markdown for docs/gpu.md."""


def row(cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def markdown(result):
    facts = result["facts"]
    lines = [f"`scripts/gpu_check` on {facts['device']}, {facts['time']}, {facts.get('athanor', 'tests only')}:", "",
             row(["part", "outcome", "seconds", "what was seen"]), row(["---"] * 4)]
    for part in result["parts"]:
        lines.append(row([part["name"], part["state"], f"{part['seconds']:.0f}", part["summary"].replace("|", "\\|")]))
    for part in result["parts"]:
        if shares := part["figures"].get("shares"):
            lines += ["", "Kernels as shares of the copy rate: " + ", ".join(f"{name} {share:.2f}" for name, share in shares.items())
                      + "."]
        if kernels := part["figures"].get("kernels"):
            lines += ["", f"The longest kernels of a step of {part['name']}:", "", row(["kernel", "launches", "ms"]), row(["---"] * 3)]
            lines += [row([f"`{each['name'][:80]}`", each["launches"], f"{each['seconds'] * 1e3:.2f}"]) for each in kernels[:15]]
    return "\n".join(lines) + "\n"

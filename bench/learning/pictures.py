"""The pictures of docs/learning.md, as SVG: means over the seeds, and bands from the least to the most of them."""
import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as pyplot

INK = {"dense": "#555555", "sparse": "#b8400a", "sparse, no balancing": "#2f7fd6", "sparse, SWIPE": "#2c8a4b"}
POINTS = 100


def smoothed(values, points):
    """Means of `points` equal parts of the values."""
    edges = [i * len(values) // points for i in range(points + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in zip(edges, edges[1:])]


def band(axes, name, xs, of_seeds):
    rows = list(zip(*of_seeds))
    axes.plot(xs, [sum(row) / len(row) for row in rows], color=INK[name], label=name, linewidth=1.5)
    axes.fill_between(xs, [min(row) for row in rows], [max(row) for row in rows], color=INK[name], alpha=0.18, linewidth=0)


def finish(axes, title, ylabel):
    axes.set_title(title, fontsize=11, loc="left")
    axes.set_xlabel("10¹² FLOPs")
    axes.set_ylabel(ylabel)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9)


def training(axes, name, of_seeds):
    band(axes, name, smoothed([f / 1e12 for f in of_seeds[0].flops], POINTS), [smoothed(r.losses, POINTS) for r in of_seeds])


def points(axes, name, of_seeds, series):
    xs = [f / 1e12 for f, _ in series(of_seeds[0])]
    band(axes, name, xs, [[value for _, value in series(r)] for r in of_seeds])


def draw(records, folder):
    folder.mkdir(parents=True, exist_ok=True)
    pyplot.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "learning", "font.family": "sans-serif"})
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    for name in ("dense", "sparse"):
        training(left, name, records[name])
        points(right, name, records[name], lambda r: r.books)
    left.set_ylim(top=6)
    finish(left, "Training loss at equal compute", "nats a token")
    finish(right, "Two books that no run was trained on", "perplexity of a byte")
    right.set_ylim(top=6)
    save(figure, folder / "learning-dense-sparse.svg")
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    for name in list(records)[1:]:
        points(left, name, records[name], lambda r: r.validation)
        band(right, name, smoothed([f / 1e12 for f in records[name][0].flops], POINTS), [smoothed(r.imbalance, POINTS) for r in records[name]])
    finish(left, "Validation loss by balancing", "nats a token")
    finish(right, "Most loaded expert over the mean, mean of layers", "")
    save(figure, folder / "learning-balance.svg")


def save(figure, path):
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    print(f"wrote {path}")

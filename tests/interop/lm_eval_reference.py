"""lm_eval's own tasks on rows that a test gives, with a model whose answers are drawn: what tests compare our tasks with."""
import hashlib
import json
import os
import random

import pytest


def drawn_answer(context, continuation):
    """(log-likelihood, is greedy, number of tokens): the same for the same request, and often equal for two of them."""
    seed = hashlib.sha256(json.dumps([context, continuation]).encode()).digest()
    draw = random.Random(seed)
    return [-draw.randrange(1, 12) * 0.7, draw.random() < 0.3, draw.randrange(1, 40)]


class Reference:
    """lm_eval with data sets from memory."""

    def __init__(self):
        os.environ.update(HF_DATASETS_OFFLINE="1", HF_HUB_OFFLINE="1", DISABLE_MULTIPROC="1")
        self.datasets = pytest.importorskip("datasets")
        pytest.importorskip("lm_eval")
        import lm_eval.api.model
        import lm_eval.api.task
        import lm_eval.evaluator
        import lm_eval.tasks
        import lm_eval.tasks._yaml_loader
        self.task_module, self.evaluator, self.tasks = lm_eval.api.task, lm_eval.evaluator, lm_eval.tasks
        self.load_yaml = lm_eval.tasks._yaml_loader.load_yaml
        self.folder = os.path.dirname(lm_eval.tasks.__file__)
        self.rows = {}  # (path, name) → {split: rows}

        class DrawnModel(lm_eval.api.model.LM):
            def loglikelihood(self, requests):
                return [tuple(drawn_answer(*request.args)[:2]) for request in requests]

            def loglikelihood_rolling(self, requests):
                return [drawn_answer("", request.args[0])[0] for request in requests]

            def generate_until(self, requests):
                raise NotImplementedError

        self.model = DrawnModel()
        self.task_module.datasets.load_dataset = self.load_dataset

    def load_dataset(self, path, name=None, **_):
        splits = self.rows.get((path, name)) or self.rows[(path, None)]
        return self.datasets.DatasetDict({split: self.datasets.Dataset.from_list(rows) for split, rows in splits.items()})

    def task(self, config, splits):
        """A task of lm_eval from its keys, with its rows."""
        config = {key: value for key, value in config.items() if key not in ("tag", "athanor")}
        config.setdefault("dataset_path", "test/" + config["task"])
        self.rows[(config["dataset_path"], config.get("dataset_name"))] = splits
        return self.task_module.ConfigurableTask(config=config)

    def evaluate(self, tasks, groups=None, fewshot=None, limit=None, seed=1234):
        """What simple_evaluate does with tasks after it made them."""
        for task in tasks.values():
            if fewshot is not None and task.get_config("num_fewshot") != 0:
                task.set_config(key="num_fewshot", value=fewshot)
            elif task.get_config("num_fewshot") is None:
                task.set_config(key="num_fewshot", value=0)
            task.set_fewshot_seed(seed=seed)
        return self.evaluator.evaluate(self.model, {"tasks": tasks, "groups": groups or {}}, limit=limit, bootstrap_iters=2, log_samples=True)

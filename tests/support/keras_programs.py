"""Random trainings with gyre.keras, compared with the model in keras_numpy_model.py."""

from __future__ import annotations

import math
import random
from typing import Any

import gyre.keras as hvd
import keras
import keras_numpy_model as model
import numpy
from keras_numpy_model import Program


def random_program(seed: int, size: int) -> Program:
    """The same on every rank."""
    dice = random.Random(seed)
    optimizer = dice.choice(["SGD", "SGD", "Adam", "RMSprop"])
    optimizer_options: dict[str, Any] = {"learning_rate": dice.choice([0.05, 0.1])}
    if optimizer != "Adam":
        optimizer_options["momentum"] = dice.choice([0.0, 0.9])
    if optimizer == "SGD":
        optimizer_options["nesterov"] = dice.random() < 0.3
    if dice.random() < 0.4:
        optimizer_options[dice.choice(["clipnorm", "global_clipnorm", "clipvalue"])] = dice.choice([0.05, 0.3])
    if dice.random() < 0.2:
        optimizer_options["weight_decay"] = 0.02
    options: dict[str, Any] = {}
    passes = dice.choice(["one", "one", "gyre", "keras"])
    if passes == "gyre":
        options = {
            "backward_passes_per_step": dice.choice([2, 3]),
            "average_aggregated_gradients": dice.random() < 0.5,
        }
    elif passes == "keras":
        optimizer_options["gradient_accumulation_steps"] = dice.choice([2, 3])
    sums = dice.random() < 0.25
    if not sums and dice.random() < 0.2:
        options["gradient_predivide_factor"] = 3.0
    trained = [0, 1, 2, 3] if dice.random() < 0.7 else [2, 3]
    members = [list(range(size))]
    if size > 2 and dice.random() < 0.25:
        members = [[0, 2], [1]]
    batch = dice.choice([3, 4])
    counts = [dice.randint(1, 5 * batch) for _ in range(size)]
    local: list[int] = []
    if dice.random() < 0.5:
        counts = [counts[0]] * size
        # The norm over all gradients would differ between the ranks, and with it what they share.
        if dice.random() < 0.4 and "global_clipnorm" not in optimizer_options:
            local = [trained[-1]]
            options["scale_local_gradients"] = dice.random() < 0.5
    groups = dice.choice([None, None, 1, 2, 9, [[trained[0], trained[1]]], [[trained[-1]], [trained[0]]]])
    return Program(
        seed=seed,
        members=members,
        optimizer=optimizer,
        optimizer_options=optimizer_options,
        options=options,
        groups=groups,
        counts=counts,
        batch=batch,
        epochs=dice.choice([1, 2, 3]),
        trained=trained,
        local=local,
        sums=sums,
    )


def network(program: Program, rank: int) -> Any:
    """With values of this rank's own, and its first layer frozen if the program does not train it."""
    layers = [keras.layers.Dense(model.HIDDEN, activation="tanh"), keras.layers.Dense(model.OUTPUTS)]
    result = keras.Sequential([keras.Input((model.INPUTS,)), *layers])
    result.set_weights(model.values(program.seed + 1000 * rank))
    layers[0].trainable = 0 in program.trained
    return result


def check_program(program: Program) -> None:
    """Collective. Trains it, and compares variables and `iterations` of this rank with the model's."""
    rank = hvd.rank()
    process_set = hvd.global_process_set
    try:
        network_of_rank = network(program, rank)
        by_number = dict(zip(program.trained, network_of_rank.trainable_variables, strict=True))
        groups: Any = program.groups
        if isinstance(groups, list):
            groups = [[by_number[number] for number in members] for members in groups]
        if len(program.members) > 1:
            process_set = hvd.add_process_set(program.members[0])
        optimizer = hvd.DistributedOptimizer(
            getattr(keras.optimizers, program.optimizer)(**program.optimizer_options),
            op=hvd.Sum if program.sums else hvd.Average,
            groups=groups,
            process_set=process_set,
            **program.options,
        )
        for number in program.local:
            optimizer.register_local_var(by_number[number])
        network_of_rank.compile(optimizer, keras.losses.MeanSquaredError())
        inputs, targets = model.samples(program.seed, rank, program.counts[rank])
        network_of_rank.fit(
            inputs,
            targets,
            batch_size=program.batch,
            epochs=program.epochs,
            shuffle=False,
            verbose=0,
            callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)],
        )
        wanted = model.train(program)[rank]
        for found, value in zip(network_of_rank.get_weights(), wanted.values, strict=True):
            numpy.testing.assert_allclose(found, value, rtol=0, atol=5e-5, err_msg=f"rank {rank}: {program}")
        steps = program.optimizer_options.get("gradient_accumulation_steps", 1)
        assert int(optimizer.iterations.numpy()) == math.floor(wanted.calls / steps), program
    finally:
        if process_set is not hvd.global_process_set:
            hvd.remove_process_set(process_set)

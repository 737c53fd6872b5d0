"""docs/guide/from_keras.md, row by row: what it says of a name of Horovod's is what a test checks. A row that is added
or renamed needs its tests here; a test that is renamed or removed is missed here."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide" / "from_keras.md"
TENSORFLOW = ROOT / "tests" / "tensorflow"
CHAPTERS = ("## Scripts for Horovod", "## Scripts from 2018", "## What Horovod does, and what Gyre does")
HEADS = ("| in a script for Horovod |", "| in the script |", "| name |")

BATCH_NORMALIZATION = [
    "keras_batch_normalization_test.py::test_moments_are_over_all_ranks_values_whatever_their_batches",
    "keras_batch_normalization_test.py::test_ranks_with_fewer_batches_do_not_hold_up_the_others",
]
OPERATIONS = "operations_test.py::test_operations_and_their_gradients"
OPTIONS = "keras_optimizer_test.py::test_options_change_the_way_and_not_the_result"
REFUSED = "keras_optimizer_test.py::test_what_cannot_be_reduced_is_refused"
ABSENT = "horovod_scripts_test.py::test_modules_that_do_not_exist_say_what_to_use"
PASSES = "keras_optimizer_test.py::test_several_backward_passes_make_one_step"

ARTICLE = "keras_2018_test.py::test_the_articles_script_runs_unchanged"

KERAS_2 = "keras_2_test.py::test_scripts_for_horovod_find_what_keras_3_no_longer_has"

TESTS_OF_ROW = {
    "Scripts for Horovod": {
        "`compile(…, experimental_run_tf_function=False)`": [
            KERAS_2,
            "keras_2_test.py::test_without_the_option_nothing_is_substituted",
        ],
        "`optimizer.variables()`": [KERAS_2],
        "`tf.keras.optimizers.legacy.SGD(…)` and its relatives": [KERAS_2],
        "`SGD(lr=…, decay=…)`; `optimizer.lr`, read, assigned, in `K.set_value()`": [KERAS_2],
        "`fit_generator`, `evaluate_generator`, `predict_generator`; `workers=`, `use_multiprocessing=`, "
        "`max_queue_size=`": [KERAS_2],
        "`hvd.sycl_built()`": [KERAS_2],
        "`tf.ConfigProto`, `tf.Session`, `K.set_session`, `keras.preprocessing.image` (`examples/keras`, "
        "`examples/tensorflow`)": [ARTICLE],
        "`hvd.BroadcastGlobalVariablesHook`, `tf.train`, `tf.estimator`, `tf.contrib`": [OPERATIONS],
        "`hvd.elastic`, `horovod.spark`, `horovod.ray`, `horovod.tensorflow.data`": [ABSENT],
        "`jit_compile=True`, `HOROVOD_ENABLE_XLA_OPS`": [OPERATIONS, REFUSED],
    },
    "Scripts from 2018": {
        "`tf.ConfigProto`, `tf.Session`, `K.set_session`": [
            ARTICLE,
            "keras_2018_test.py::test_sessions_hold_numbers_of_threads_and_do_not_run",
        ],
        "`KERAS_BACKEND=cntk`, `theano`": ["keras_2018_test.py::test_back_ends_that_are_gone_become_tensorflow"],
        "`keras.optimizers.rmsprop(lr=…, decay=…)`, `sgd`, `adam`, …; positional arguments; `epsilon=None`; "
        "`optimizer.lr`": [
            ARTICLE,
            "keras_2018_test.py::test_optimizers_have_the_arguments_defaults_and_decay_of_then",
        ],
        "`metrics=['accuracy']`, `{val_acc}`, `logs['acc']`": [
            ARTICLE,
            "keras_2018_test.py::test_metrics_have_the_names_of_then",
        ],
        "`fit_generator`, `evaluate_generator`, `predict_generator`, `predict_classes`, `nb_epoch=`": [
            ARTICLE,
            "keras_2018_test.py::test_generators_train_through_fit",
        ],
        "`hvd.callbacks.LearningRateWarmupCallback(warmup_epochs=5)`, `LearningRateScheduleCallback(0.1, "
        "start_epoch=30)`, without `initial_lr`": [
            "keras_2018_callbacks_test.py::test_horovods_callbacks_of_then_take_the_rate_of_the_optimizer"
        ],
        "`keras.preprocessing.image.ImageDataGenerator`, `…preprocessing.text`; `np_utils`, `keras.layers.core` and "
        "other modules that are gone; `K.get_value`, `K.image_dim_ordering`": [
            ARTICLE,
            "keras_2018_test.py::test_modules_that_are_gone_are_found",
        ],
        "`ModelCheckpoint('….hdf5', period=…)`, `save_weights_only=True`, `save_weights('….h5')`": [
            "keras_2018_test.py::test_checkpoints_have_any_name_and_every_so_many_epochs"
        ],
        "`TensorBoard(…)`": [ARTICLE, "keras_2018_test.py::test_tensor_boards_files_are_written_without_it"],
        "`load_model('….h5')`": ["keras_2018_test.py::test_models_are_loaded_with_state_losses_and_functions"],
    },
    "gyre.keras": {
        "`DistributedOptimizer`": [
            "keras_optimizer_test.py::test_ranks_train_as_one_rank_with_the_whole_batch",
            "keras_optimizer_test.py::test_saved_models_load_with_and_without_gyre",
        ],
        "where gradients are reduced": [
            "keras_optimizer_test.py::test_ranks_train_as_one_rank_with_the_whole_batch",
            REFUSED,
        ],
        "overlap": [
            "gradient_ops_test.py::test_a_gradient_leaves_when_it_has_been_computed",
            "gradient_ops_test.py::test_the_ops_and_the_function_without_them_give_the_same_bits",
        ],
        "`op`": [OPTIONS, REFUSED],
        "`compression`": [OPTIONS],
        "`gradient_predivide_factor`, `groups`, `num_groups`, `process_set`": [
            OPTIONS,
            "keras_optimizer_test.py::test_a_process_set_trains_without_the_others",
        ],
        "`sparse_as_dense`": ["keras_optimizer_test.py::test_sparse_gradients_are_gathered"],
        "`backward_passes_per_step=n`": [PASSES],
        "Keras's `gradient_accumulation_steps`": [PASSES],
        "`register_local_var`, `PartialDistributedOptimizer`": [
            "keras_optimizer_test.py::test_registered_variables_are_trained_by_their_rank_alone"
        ],
        "`LossScaleOptimizer`": ["keras_optimizer_test.py::test_loss_scaling_leaves_out_a_step_on_all_ranks_or_none"],
        "`load_model`": ["keras_optimizer_test.py::test_saved_models_load_with_and_without_gyre"],
        "`BroadcastGlobalVariablesCallback`": [
            "keras_callbacks_test.py::test_all_ranks_begin_with_the_roots_variables"
        ],
        "`MetricAverageCallback`": [
            "keras_callbacks_test.py::test_metrics_of_an_epoch_are_averages",
            "keras_callbacks_test.py::test_ranks_with_fewer_batches_wait_for_the_others",
        ],
        "`LearningRateScheduleCallback`, `LearningRateWarmupCallback`": [
            "keras_callbacks_test.py::test_learning_rates_warm_up_and_follow_schedules",
            "keras_callbacks_test.py::test_a_changed_rate_corrects_the_momentum_once",
        ],
        "`BestModelCheckpoint`": ["keras_callbacks_test.py::test_the_best_model_is_saved_where_the_script_says"],
        "`allreduce`, `allgather`, `broadcast`, `reducescatter`": [
            "keras_optimizer_test.py::test_values_are_reduced_gathered_and_broadcast"
        ],
        "`broadcast_global_variables`": ["keras_optimizer_test.py::test_values_are_reduced_gathered_and_broadcast"],
        "`SyncBatchNormalization`": BATCH_NORMALIZATION,
        "`elastic`": [ABSENT],
    },
    "gyre.tensorflow": {
        "`allreduce`, `grouped_allreduce`": [OPERATIONS],
        "`allgather`, `broadcast`, `alltoall`, `reducescatter` and grouped forms": [OPERATIONS],
        "gradients": [OPERATIONS],
        "`DistributedGradientTape`, `PartialDistributedGradientTape`, `register_local_source`": [
            "operations_test.py::test_tapes_train_as_one_rank_with_the_whole_batch",
            "operations_test.py::test_tapes_keep_local_sparse_and_missing_gradients",
        ],
        "`DistributedOptimizer`": ["keras_optimizer_test.py::test_ranks_train_as_one_rank_with_the_whole_batch"],
        "`broadcast_variables`, `broadcast_`": [
            OPERATIONS,
            "horovod_scripts_test.py::test_a_tensorflow_script_runs_unchanged",
        ],
        "`broadcast_object`, `allgather_object`": [OPERATIONS],
        "`rank_op`, `size_op`, `local_rank_op`, `local_size_op`, `process_set_included_op`": [OPERATIONS],
        "`join`": [OPERATIONS],
        "`broadcast_global_variables`, `broadcast_object_fn`, `BroadcastGlobalVariablesHook`": [OPERATIONS],
        "`SyncBatchNormalization`": BATCH_NORMALIZATION,
        "`LocalGradientAggregationHelper`, `horovod.tensorflow.gradient_aggregation`": [ABSENT],
        "`horovod.tensorflow.data`": [ABSENT],
    },
}


def rows(guide: str) -> Iterator[tuple[str, str]]:
    """(table, name in the first column) of the chapters' tables."""
    chapter = table = ""
    for line in guide.splitlines():
        if line.startswith("## "):
            chapter, table = line, line.removeprefix("## ")
        elif heading := re.fullmatch(r"### `([\w.]+)`", line):
            table = heading.group(1)
        elif chapter in CHAPTERS and line.startswith("| ") and not line.startswith(HEADS):
            yield table, line.removeprefix("| ").split(" | ")[0]


def existing_tests(folder: Path) -> set[str]:
    return {
        f"{file.name}::{node.name}"
        for file in folder.glob("*_test.py")
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_row_names_its_tests() -> None:
    found = list(rows(GUIDE.read_text(encoding="utf-8")))
    assert found == [(table, name) for table, tests in TESTS_OF_ROW.items() for name in tests]


@pytest.mark.parametrize("table", TESTS_OF_ROW)
def test_the_tests_of_every_row_exist(table: str) -> None:
    known = existing_tests(TENSORFLOW)
    for name, tests in TESTS_OF_ROW[table].items():
        assert tests, f"{name} has no test"
        assert set(tests) <= known, f"{name}: {set(tests) - known} do not exist in {TENSORFLOW}"

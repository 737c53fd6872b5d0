"""The servers' optimizer: it has the options of the program's own one, which then only describes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from gyre.core import _core
from gyre.errors import InvalidArgumentError, UnsupportedError
from gyre.params._memory import all_shared, shared
from gyre.params._mixin import Closure, ServerMixin

Named = list[tuple[str, torch.Tensor]]
Group = dict[str, Any]

_RULES: dict[type[torch.optim.Optimizer], str] = {
    torch.optim.SGD: "sgd",
    torch.optim.RMSprop: "rmsprop",
    torch.optim.Adagrad: "adagrad",
    torch.optim.Adam: "adam",
    torch.optim.AdamW: "adamw",
}
# Of torch's parameter groups, and what the servers call it.
_NUMBERS = {
    "lr": "rate",
    "momentum": "momentum",
    "dampening": "dampening",
    "weight_decay": "weight_decay",
    "alpha": "alpha",
    "eps": "epsilon",
    "lr_decay": "lr_decay",
    "initial_accumulator_value": "initial_accumulator",
}
_SWITCHES = ("nesterov", "centered", "amsgrad")
_REFUSED = ("maximize", "foreach", "fused", "capturable", "differentiable")


def _rule_of(class_: type[torch.optim.Optimizer]) -> str:
    """By the class whose step() would run: a subclass may do anything."""
    rule = _RULES.get(class_)
    if rule is None:
        names = ", ".join(known.__name__ for known in _RULES)
        raise UnsupportedError(
            f"the servers cannot take the steps of {class_.__name__}: with on='servers' the optimizer is exactly one "
            f"of torch.optim's {names}"
        )
    return rule


def _options_of_group(rule: str, group: Group) -> _core.UpdateOptions:
    for name in _REFUSED:
        if group.get(name):
            raise UnsupportedError(f"the servers' {rule} has no option {name}={group[name]!r}; leave it out")
    if rule == "adam" and group.get("decoupled_weight_decay"):
        rule = "adamw"
    options = _core.UpdateOptions(rule)
    for theirs, ours in _NUMBERS.items():
        if theirs in group:
            setattr(options, ours, float(group[theirs]))
    for name in _SWITCHES:
        setattr(options, name, bool(group.get(name, False)))
    if "betas" in group:
        options.beta1, options.beta2 = (float(beta) for beta in group["betas"])
    return options


def options_of(class_: type[torch.optim.Optimizer], groups: Iterable[Group]) -> list[_core.UpdateOptions]:
    """The options of each parameter group. UnsupportedError for what the servers cannot do."""
    rule = _rule_of(class_)
    return [_options_of_group(rule, group) for group in groups]


def _slot_names(rule: str, options: Group) -> list[str]:
    """torch's names for what the servers hold for each value, in their order."""
    momentum = ["momentum_buffer"] if options.get("momentum", 0) > 0 else []
    match rule:
        case "sgd":
            return momentum
        case "rmsprop":
            return ["square_avg", *momentum, *(["grad_avg"] if options["centered"] else [])]
        case "adagrad":
            return ["sum"]
    return ["exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if options["amsgrad"] else [])]


def tables_of(named: Named, sparse: Iterable[torch.Tensor | torch.nn.Module]) -> tuple[Named, Named]:
    """The dense parameters, and those that `sparse` names, by themselves or by their module."""
    tables = {id(one.weight if isinstance(one, torch.nn.Module) else one) for one in sparse}
    unknown = tables - {id(parameter) for _, parameter in named}
    if unknown:
        raise InvalidArgumentError("sparse_parameters names a tensor that the optimizer does not have")
    for name, parameter in named:
        if id(parameter) in tables and (parameter.dim() < 2 or parameter.numel() == 0):
            raise InvalidArgumentError(f"{name}, of shape {tuple(parameter.shape)}, has no rows")
    dense = [(name, parameter) for name, parameter in named if id(parameter) not in tables]
    return dense, [(name, parameter) for name, parameter in named if id(parameter) in tables]


class ServedParameters(ServerMixin):
    """The servers hold the parameters and the only optimizer of the job; workers send gradients."""

    _tables: Named
    _rule: str
    _class: type[torch.optim.Optimizer]

    @property
    def dropped_steps(self) -> int:  # type: ignore[override]
        assert self._worker is not None
        return self._worker.dropped_steps

    def attach(self, worker: _core.ParameterWorker, choice: _core.Consistency, named: Named, tables: Named) -> None:
        """Tells the servers of parameters and options. Errors are those of options that cannot be."""
        self._worker, self._named, self._tables = worker, named, tables
        self._class = type(self).__bases__[1]
        self._rule = _rule_of(self._class)
        numbers = {id(one): number for number, group in enumerate(self.param_groups) for one in group["params"]}
        worker.attach_served(
            [parameter.numel() for _, parameter in named],
            [(one.shape[0], one[0].numel(), numbers[id(one)]) for _, one in tables],
            [name for name, _ in (*named, *tables)],
            options_of(self._class, self.param_groups),
            [numbers[id(parameter)] for _, parameter in named],
            choice,
        )
        self.state.clear()  # Adagrad's sums: the servers have them.

    def begin(self) -> None:
        """Makes the first worker's parameters everybody's, once. Collective."""
        assert self._worker is not None
        self._worker.served_begin(all_shared(self._parameters), all_shared(self._whole_tables()))

    @torch.optim.Optimizer.profile_hook_step  # Runs the hooks, as torch's own step() does.
    def step(self, closure: Closure | None = None) -> Any:
        """Sends the gradients; the servers' parameters become this worker's. A step that comes too late is left out."""
        assert self._worker is not None
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        gradients = [self._gradient(*one) for one in self._named]
        rows = [self._rows(*one) for one in self._tables]
        self._worker.served_step(
            [one is not None for one in (*gradients, *rows)],
            all_shared(one for one in gradients if one is not None),
            [shared(one[0]) for one in rows if one is not None],
            [shared(one[1]) for one in rows if one is not None],
            options_of(self._class, self.param_groups),
            all_shared(self._parameters),
            all_shared(self._whole_tables()),
        )
        return loss

    step.hooked = True  # type: ignore[attr-defined]

    def settle(self) -> None:
        assert self._worker is not None
        self._worker.served_settle(all_shared(self._parameters), all_shared(self._whole_tables()))

    def state_dict(self) -> dict[str, Any]:
        """As torch's own, with the servers' state as it is now. Not collective."""
        assert self._worker is not None
        owners, groups = self._all_named(), self._groups()
        slots = [
            [torch.empty(one.shape, dtype=torch.float32) for _ in _slot_names(self._rule, group)]
            for (_, one), group in zip(owners, groups, strict=True)
        ]
        steps = self._worker.save_state([all_shared(of_one) for of_one in slots])
        for (_, parameter), group, own, count in zip(owners, groups, slots, steps, strict=bool(steps)):
            state = dict(zip(_slot_names(self._rule, group), own, strict=True))
            if self._rule != "sgd":
                state["step"] = torch.tensor(float(count))
            if state and (count > 0 or self._rule == "adagrad"):
                self.state[parameter] = state
        try:
            return super().state_dict()
        finally:
            self.state.clear()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The first worker's state becomes the servers' in the next collective call (a step, settle(), …), together
        with its parameters, which the program loads by itself. On all workers."""
        assert self._worker is not None
        super().load_state_dict(state_dict)
        states = []
        for (name, parameter), group in zip(self._all_named(), self._groups(), strict=True):
            state = self.state.get(parameter, {})
            names = _slot_names(self._rule, group)
            has_state = bool(state) and all(state.get(slot) is not None for slot in names)
            if state and not has_state and self._rule != "sgd":
                raise InvalidArgumentError(f"the state of {name} is not one of this optimizer, whose is {names}")
            count = int(state.get("step", 1 if has_state and names else 0)) if state else 0
            initial = float(group.get("initial_accumulator_value", 0.0))
            slots = [
                state[slot].to(torch.float32).contiguous() if has_state else torch.full_like(parameter, initial)
                for slot in names
            ]
            states.append((count, all_shared(slots)))
        self.state.clear()
        self._worker.load_state(states)

    def _all_named(self) -> Named:
        return [*self._named, *self._tables]

    def _groups(self) -> list[Group]:
        """By parameter."""
        groups = {id(one): group for group in self.param_groups for one in group["params"]}
        return [groups[id(parameter)] for _, parameter in self._all_named()]

    def _whole_tables(self) -> list[torch.Tensor]:
        return [parameter for _, parameter in self._tables]

    def _gradient(self, name: str, parameter: torch.Tensor) -> torch.Tensor | None:
        gradient = parameter.grad
        if gradient is None or not parameter.requires_grad:
            return None
        if gradient.layout != torch.strided:
            raise UnsupportedError(
                f"the gradient of {name} is sparse: tell ParameterServerOptimizer(…, sparse_parameters=[…])"
            )
        return gradient.detach().contiguous()

    def _rows(self, name: str, parameter: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        """The rows that the gradient touches, ascending, and their gradients."""
        gradient = parameter.grad
        if gradient is None or not parameter.requires_grad:
            return None
        if gradient.layout != torch.sparse_coo or gradient.sparse_dim() != 1 or gradient.shape != parameter.shape:
            raise UnsupportedError(
                f"the gradient of {name} is not sparse by rows, although sparse_parameters names it: an nn.Embedding "
                "needs sparse=True"
            )
        gradient = gradient.detach().coalesce()  # Each row once; ascending.
        return gradient.indices()[0].contiguous(), gradient.values().contiguous()

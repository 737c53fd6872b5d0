// What it has of NCCL: operations are queued on a stream of its own, which waits for the caller's; a Work makes streams
// wait, not the host; ranks match their operations by order alone, so that ranks which call different ones hang until
// the time limit; a send lasts until it is received; the types and reductions that NCCL lacks are refused. Bytes travel
// through torch's store.
#include "tests/device/stand_in.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>

#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "tests/device/communication.h"
#include "tests/device/device.h"
#include "tests/device/watchdog.h"

namespace gyre::test_device {
namespace {

using c10d::ReduceOp;
using Tensors = std::vector<at::Tensor>;

/// The operations that this process has passed to stand-ins.
struct Calls {
  std::mutex mutex;
  std::vector<std::string> names;
};

Calls& calls() {
  static auto* made = new Calls;
  return *made;
}

class Work final : public c10d::Work {
 public:
  Work(int rank, c10d::OpType type, Position end, Tensors outputs)
      : c10d::Work(rank, type), end_(end), outputs_(std::move(outputs)) {
    const c10::Device device(kType, static_cast<c10::DeviceIndex>(end.stream.device));
    future_ =
        c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), std::vector{device});
    const c10::StreamGuard guard(c10::Stream(c10::Stream::UNSAFE, device, end.stream.number));
    future_->markCompleted(c10::IValue(outputs_));  // It records where the stream now stands.
  }
  bool isCompleted() override { return world().reached(end_); }
  bool isSuccess() const override { return true; }
  void synchronize() override {
    world().wait_on_stream(current_stream(static_cast<c10::DeviceIndex>(end_.stream.device)), end_);
    if (opType_ == c10d::OpType::BARRIER) world().wait_on_host(end_);
  }
  bool wait(milliseconds /*timeout*/) override {
    synchronize();
    return true;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  Tensors result() override { return outputs_; }

 private:
  Position end_;
  Tensors outputs_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// What a step does with its tensors: it finds places, not tensors.

std::vector<Place> places_of(const Tensors& tensors) {
  std::vector<Place> places;
  for (const auto& tensor : tensors) places.push_back(place_of(tensor));
  return places;
}

size_t bytes_of(const Place& place) {
  return static_cast<size_t>(c10::multiply_integers(place.sizes)) * c10::elementSize(place.type);
}

Bytes packed(const std::vector<Place>& places) {
  Bytes bytes;
  for (const Place& place : places) {
    const auto* from = static_cast<const uint8_t*>(place.memory);
    if (from != nullptr) bytes.insert(bytes.end(), from, from + bytes_of(place));
  }
  return bytes;
}

void unpack(const Bytes& bytes, size_t offset, const Place& place) {
  TORCH_CHECK(offset + bytes_of(place) <= bytes.size(), "standin: a rank has sent too little");
  if (bytes_of(place) > 0) std::memcpy(place.memory, bytes.data() + offset, bytes_of(place));
}

at::Tensor combined(const ReduceOp& op, const at::Tensor& sum, const at::Tensor& next) {
  switch (op.op_) {
    case ReduceOp::PRODUCT: return sum * next;
    case ReduceOp::MIN: return at::minimum(sum, next);
    case ReduceOp::MAX: return at::maximum(sum, next);
    default: return sum + next;
  }
}

/// The reduction of what each rank has at `offset`, in the order of ranks, into `target`.
void reduce_into(const Place& target, const std::vector<Bytes>& all, size_t offset, const ReduceOp& op) {
  at::Tensor result;
  for (const Bytes& bytes : all) {
    Bytes own(bytes.begin() + static_cast<std::ptrdiff_t>(offset),
              bytes.begin() + static_cast<std::ptrdiff_t>(offset + bytes_of(target)));
    const auto next = open({own.data(), target.sizes, at::empty(target.sizes).strides().vec(), target.type}).clone();
    at::Tensor scaled = next;
    if (op.op_ == ReduceOp::PREMUL_SUM) {
      const auto* factor = static_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
      scaled =
          next * (factor->tensor_factor.defined() ? factor->tensor_factor.item() : c10::Scalar(factor->double_factor));
    }
    result = result.defined() ? combined(op, result, scaled) : scaled;
  }
  if (op.op_ == ReduceOp::AVG) {
    const auto ranks = static_cast<int64_t>(all.size());
    result = result.is_floating_point() ? result / ranks : at::div(result, ranks, "trunc");
  }
  open(target).copy_(result);
}

void check_reducible(const ReduceOp& op, const Tensors& tensors) {
  TORCH_CHECK(op.op_ != ReduceOp::BAND && op.op_ != ReduceOp::BOR && op.op_ != ReduceOp::BXOR,
              "Cannot use ReduceOp of bits with standin, as with NCCL");
  for (const auto& tensor : tensors) {
    TORCH_CHECK(op.op_ != ReduceOp::PREMUL_SUM || tensor.is_floating_point(),
                "PREMUL_SUM needs floating-point numbers");
  }
}

void check_movable(const Tensors& tensors) {
  for (const auto& tensor : tensors) {
    TORCH_CHECK(on_device(tensor), "No backend type associated with device type ", tensor.device().type());
    TORCH_CHECK(tensor.device() == tensors.front().device(), "standin: tensors of two devices in one operation");
    TORCH_CHECK(tensor.is_contiguous(), "Tensors must be contiguous");
    TORCH_CHECK(tensor.scalar_type() != at::kShort && !tensor.is_complex(),
                "Input tensor data type is not supported for standin process group: ", tensor.scalar_type());
  }
}

class StandIn final : public c10d::Backend {
 public:
  StandIn(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, milliseconds timeout)
      : Backend(rank, size),
        mailbox_(std::make_shared<Mailbox>(store, timeout)),
        connecting_(store, timeout),
        options_(c10::make_intrusive<Options>("standin", timeout)),
        watchdog_(Watchdog::of_environment(store, rank)) {}
  ~StandIn() override { shutdown(); }

  const std::string getBackendName() const override { return "standin"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  bool supportsCoalescing() const override { return true; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return collectives_; }
  void setTimeout(milliseconds timeout) override { options_->timeout = timeout; }
  void abort() override {
    mailbox_->close();
    connecting_.close();
    shutdown();
  }
  /// When what is queued has run. Idempotent. Thread-safe, as abort() is: NCCL's are called while a call is under way.
  void shutdown() override {
    mailbox_->leave();
    std::map<int, std::unique_ptr<Communication>> ended;
    std::unique_ptr<Watchdog> watchdog;  // Ends before what it watches.
    const std::lock_guard lock(mutex_);
    ended_ = true;
    ended.swap(communications_);
    watchdog.swap(watchdog_);
  }

  using Works = c10::intrusive_ptr<c10d::Work>;

  Works broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    const auto root = static_cast<size_t>(options.rootRank);
    return collective(c10d::OpType::BROADCAST, "broadcast", options.asyncOp, tensors, tensors,
                      [root](const auto& all, const auto& targets) { unpack(all[root], 0, targets[0]); });
  }

  Works allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    check_reducible(options.reduceOp, tensors);
    return collective(c10d::OpType::ALLREDUCE, "allreduce", options.asyncOp, tensors, tensors,
                      [op = options.reduceOp](const auto& all, const auto& targets) {
                        size_t offset = 0;
                        for (const Place& target : targets) {
                          reduce_into(target, all, offset, op);
                          offset += bytes_of(target);
                        }
                      });
  }

  Works allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return allreduce(tensors, options);
  }

  Works reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    check_reducible(options.reduceOp, tensors);
    const bool keeps = options.rootRank == rank_;
    return collective(c10d::OpType::REDUCE, "reduce", options.asyncOp, tensors, tensors,
                      [keeps, op = options.reduceOp](const auto& all, const auto& targets) {
                        if (keeps) reduce_into(targets[0], all, 0, op);
                      });
  }

  Works allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    return collective(c10d::OpType::ALLGATHER, "allgather", options.asyncOp, inputs, outputs.at(0),
                      [](const auto& all, const auto& targets) {
                        for (size_t rank = 0; rank < all.size(); ++rank) unpack(all[rank], 0, targets[rank]);
                      });
  }

  Works _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    Tensors outputs{output}, inputs{input};
    return allgather_into_tensor_coalesced(outputs, inputs, options);
  }

  Works allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                        const c10d::AllgatherOptions& options) override {
    return collective(c10d::OpType::_ALLGATHER_BASE, "all_gather_single", options.asyncOp, inputs, outputs,
                      [sources = sizes_of(inputs)](const auto& all, const auto& targets) {
                        size_t offset = 0;
                        for (size_t i = 0; i < targets.size(); ++i) {
                          for (size_t rank = 0; rank < all.size(); ++rank)
                            unpack(all[rank], offset, slice(targets[i], rank, all.size()));
                          offset += sources[i];
                        }
                      });
  }

  Works reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                       const c10d::ReduceScatterOptions& options) override {
    check_reducible(options.reduceOp, outputs);
    const auto sizes = sizes_of(inputs.at(0));
    const size_t offset = std::accumulate(sizes.begin(), sizes.begin() + rank_, size_t{0});
    return collective(c10d::OpType::REDUCE_SCATTER, "reduce_scatter", options.asyncOp, inputs.at(0), outputs,
                      [offset, op = options.reduceOp](const auto& all, const auto& targets) {
                        reduce_into(targets[0], all, offset, op);
                      });
  }

  Works _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                             const c10d::ReduceScatterOptions& options) override {
    Tensors outputs{output}, inputs{input};
    return reduce_scatter_tensor_coalesced(outputs, inputs, options);
  }

  Works reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                        const c10d::ReduceScatterOptions& options) override {
    check_reducible(options.reduceOp, outputs);
    return collective(c10d::OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_single", options.asyncOp, inputs, outputs,
                      [sources = sizes_of(inputs), rank = static_cast<size_t>(rank_), op = options.reduceOp](
                          const auto& all, const auto& targets) {
                        size_t offset = 0;
                        for (size_t i = 0; i < targets.size(); ++i) {
                          reduce_into(targets[i], all, offset + rank * bytes_of(targets[i]), op);
                          offset += sources[i];
                        }
                      });
  }

  Works alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                      std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override {
    const auto parts = [&](const at::Tensor& whole, const std::vector<int64_t>& splits) {
      return splits.empty() ? whole.tensor_split(size_) : whole.split_with_sizes(splits);
    };
    auto outputs = parts(output, output_splits), inputs = parts(input, input_splits);
    return alltoall(outputs, inputs, options);
  }

  Works alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    // Each rank's bytes begin with the sizes of its parts, from which the others know where theirs is.
    Bytes header(inputs.size() * sizeof(uint64_t));
    const auto sizes = sizes_of(inputs);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const uint64_t size = sizes[i];
      std::memcpy(header.data() + i * sizeof size, &size, sizeof size);
    }
    return collective(
        c10d::OpType::ALLTOALL, "alltoall", options.asyncOp, inputs, outputs,
        [rank = static_cast<size_t>(rank_)](const auto& all, const auto& targets) {
          for (size_t from = 0; from < all.size(); ++from) {
            size_t offset = all.size() * sizeof(uint64_t);
            for (size_t i = 0; i < rank; ++i) {
              uint64_t size = 0;
              std::memcpy(&size, all[from].data() + i * sizeof size, sizeof size);
              offset += size;
            }
            unpack(all[from], offset, targets[from]);
          }
        },
        header);
  }

  Works gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    const Tensors kept = options.rootRank == rank_ ? outputs.at(0) : Tensors{};
    return collective(c10d::OpType::GATHER, "gather", options.asyncOp, inputs, kept,
                      [](const auto& all, const auto& targets) {
                        for (size_t rank = 0; rank < targets.size(); ++rank) unpack(all[rank], 0, targets[rank]);
                      });
  }

  Works scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override {
    const Tensors given = options.rootRank == rank_ ? inputs.at(0) : Tensors{};
    return collective(
        c10d::OpType::SCATTER, "scatter", options.asyncOp, given, outputs,
        [rank = static_cast<size_t>(rank_), root = static_cast<size_t>(options.rootRank)](
            const auto& all, const auto& targets) { unpack(all[root], rank * bytes_of(targets[0]), targets[0]); });
  }

  Works barrier(const c10d::BarrierOptions& options) override {
    const auto index = options.device ? options.device->index() : c10::DeviceIndex{-1};
    const auto device = static_cast<c10::DeviceIndex>(index >= 0 ? index : current_stream(-1).device);
    const Tensors nothing{at::empty({1}, at::TensorOptions().device(c10::Device(kType, device)).dtype(at::kByte))};
    return collective(c10d::OpType::BARRIER, "barrier", true, nothing, {}, [](const auto&, const auto&) {});
  }

  Works send(Tensors& tensors, int to, int /*tag*/) override {
    return message(c10d::OpType::SEND, "send", tensors, to);
  }
  Works recv(Tensors& tensors, int from, int /*tag*/) override {
    return message(c10d::OpType::RECV, "recv", tensors, from);
  }

  void startCoalescing() override { coalesced_.emplace(); }
  Works endCoalescing() override {
    const Messages together = std::exchange(coalesced_, std::nullopt).value_or(Messages{});
    // All that was called since then is on one stream, so that the last one's end is that of all.
    if (together.all.empty()) return together.last_collective;
    return exchange(c10d::OpType::COALESCED, together);
  }

 private:
  /// What a collective makes of the bytes of all ranks.
  using Combine = std::function<void(const std::vector<Bytes>&, const std::vector<Place>&)>;

  /// Messages between pairs of ranks that are all on their way at once.
  struct Messages {
    struct One {
      bool sends;
      std::string key;
      at::Tensor tensor;
    };
    std::vector<One> all;
    Works last_collective;
  };

  static std::vector<size_t> sizes_of(const Tensors& tensors) {
    std::vector<size_t> sizes;
    for (const auto& tensor : tensors) sizes.push_back(tensor.nbytes());
    return sizes;
  }

  /// The `index`-th of `count` equal parts of a contiguous place.
  static Place slice(const Place& whole, size_t index, size_t count) {
    const auto elements = c10::multiply_integers(whole.sizes) / static_cast<int64_t>(count);
    auto* start =
        static_cast<char*>(whole.memory) + index * static_cast<size_t>(elements) * c10::elementSize(whole.type);
    return {start, {elements}, {1}, whole.type};
  }

  static void note(const std::string& name) {
    const std::lock_guard lock(calls().mutex);
    calls().names.push_back(name);
  }

  Communication& communication(const at::Tensor& tensor) {
    TORCH_CHECK(communications_.empty() || communications_.contains(tensor.device().index()),
                "standin: a group has one device of each rank, as with NCCL");
    auto& known = communications_[tensor.device().index()];
    if (!known) known = std::make_unique<Communication>(tensor.device().index());
    return *known;
  }

  Works queue(c10d::OpType type, const Tensors& used, const Tensors& outputs, std::function<void()> step) {
    check_movable(used);
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(!ended_, "standin: the group has ended");
    Communication& known = communication(used.front());
    for (const auto& tensor : used) {
      if (tensor.storage().data() != nullptr) world().record(tensor.storage().mutable_data(), known.stream());
    }
    const Position end = known.enqueue([step = std::move(step)] {
      try {
        step();
      } catch (const Closed&) {
        return;  // As a kernel that was aborted: its results are what they are.
      }
    });
    if (watchdog_) {
      const bool is_message =
          type == c10d::OpType::SEND || type == c10d::OpType::RECV || type == c10d::OpType::COALESCED;
      watchdog_->called(is_message ? ++exchanges_ : collectives_, type, used.front().numel(), used.back().numel(), end);
    }
    auto work = c10::make_intrusive<Work>(rank_, type, end, outputs);
    if (coalesced_) coalesced_->last_collective = work;
    return work;
  }

  /// As NCCL does, returns no work if the call is not asynchronous: the current stream waits then.
  Works collective(c10d::OpType type, const std::string& name, bool is_async, const Tensors& inputs,
                   const Tensors& outputs, const Combine& combine, const Bytes& header = {}) {
    note(name);
    // NCCL connects the ranks for an algorithm when it is first used, and the call waits on the host for all of them.
    if (const char* late = std::getenv("STAND_IN_CONNECTS_LATE"); late != nullptr && name == late)
      connecting_.meet(name, rank_, size_);
    Tensors used = inputs;
    used.insert(used.end(), outputs.begin(), outputs.end());
    const uint64_t number = ++collectives_;
    const auto key = [name](uint64_t of, int rank) {
      return name + " " + std::to_string(of) + " of rank " + std::to_string(rank);
    };
    const Works work = queue(type, used, outputs,
                             [=, mailbox = mailbox_, own_rank = rank_, size = size_, sources = places_of(inputs),
                              targets = places_of(outputs)] {
                               Bytes own = header;
                               const Bytes rest = packed(sources);
                               own.insert(own.end(), rest.begin(), rest.end());
                               mailbox->post(key(number, own_rank), own);
                               std::vector<Bytes> all;
                               for (int rank = 0; rank < size; ++rank) all.push_back(mailbox->fetch(key(number, rank)));
                               // All have posted this one, and so have read what was posted before it.
                               if (!mailbox->last_posted.empty()) mailbox->forget(mailbox->last_posted);
                               mailbox->last_posted = key(number, own_rank);
                               combine(all, targets);
                             });
    if (is_async || coalesced_) return work;
    work->wait();
    return nullptr;
  }

  Works message(c10d::OpType type, const std::string& name, const Tensors& tensors, int other) {
    note(name);
    check_movable(tensors);
    const bool sends = type == c10d::OpType::SEND;
    const std::pair way = sends ? std::pair(rank_, other) : std::pair(other, rank_);
    const auto key = "message " + std::to_string(++messages_[way]) + " from rank " + std::to_string(way.first) +
                     " to " + std::to_string(way.second);
    const Messages::One one{sends, key, tensors.at(0)};
    if (coalesced_) {
      coalesced_->all.push_back(one);
      return nullptr;
    }
    return exchange(type, {{one}, nullptr});
  }

  Works exchange(c10d::OpType type, const Messages& messages) {
    Tensors used;
    for (const auto& one : messages.all) used.push_back(one.tensor);
    std::vector<std::tuple<bool, std::string, Place>> steps;
    for (const auto& one : messages.all) steps.emplace_back(one.sends, one.key, place_of(one.tensor));
    return queue(type, used, used, [steps, mailbox = mailbox_] {
      for (const auto& [sends, key, place] : steps) {
        if (sends) mailbox->post(key, packed({place}));
      }
      for (const auto& [sends, key, place] : steps) {
        if (sends) continue;
        unpack(mailbox->fetch(key), 0, place);
        mailbox->post(key + " received", {1});
      }
      for (const auto& [sends, key, place] : steps) {
        if (!sends) continue;
        mailbox->fetch(key + " received");
        mailbox->forget(key + " received");
        mailbox->forget(key);
      }
    });
  }

  std::shared_ptr<Mailbox> mailbox_;
  Mailbox connecting_;
  c10::intrusive_ptr<Options> options_;
  std::unique_ptr<Watchdog> watchdog_;
  std::mutex mutex_;
  std::map<int, std::unique_ptr<Communication>> communications_;
  std::map<std::pair<int, int>, uint64_t> messages_;
  std::optional<Messages> coalesced_;
  uint64_t collectives_ = 0;
  uint64_t exchanges_ = 0;
  bool ended_ = false;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_stand_in(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                milliseconds timeout) {
  return c10::make_intrusive<StandIn>(store, rank, size, timeout);
}

std::vector<std::string> stand_in_calls() {
  const std::lock_guard lock(calls().mutex);
  return calls().names;
}

}  // namespace gyre::test_device

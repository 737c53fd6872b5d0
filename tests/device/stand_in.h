// A backend of torch.distributed for the test device, as NCCL is one for GPUs.
#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace gyre::test_device {

/// Waits for no other rank; the first operation of two ranks needs these two only.
c10::intrusive_ptr<c10d::Backend> make_stand_in(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                std::chrono::milliseconds timeout);

/// The operations that this process has passed to stand-ins, in order.
std::vector<std::string> stand_in_calls();

}  // namespace gyre::test_device

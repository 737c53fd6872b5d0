// Workers and servers as threads, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/random.h"
#include "gyre/collectives/kernels.h"
#include "gyre/group/in_process.h"
#include "gyre/params/client.h"
#include "gyre/params/server.h"

namespace gyre::params {

using Tensors = std::vector<std::vector<float>>;

inline const std::vector<std::uint64_t> kSizes = {5, 300, 1, 64, 7};

inline Tensors zeros() {
  Tensors tensors;
  for (const std::uint64_t size : kSizes) tensors.emplace_back(size);
  return tensors;
}

inline Tensors first_parameters() {
  Tensors tensors = zeros();
  Random random(7);
  for (auto& tensor : tensors) {
    for (float& value : tensor) value = random.uniform(-1, 1);
  }
  return tensors;
}

/// What a worker computes from the parameters in a step: anything that depends on all three.
inline Tensors gradients_of(const Tensors& parameters, int worker, int step) {
  Tensors gradients = parameters;
  Random random(static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(worker));
  for (auto& tensor : gradients) {
    for (float& value : tensor) value = 0.5F * value + random.uniform(-1, 1);
  }
  return gradients;
}

inline std::vector<std::span<float>> spans(Tensors& tensors) { return {tensors.begin(), tensors.end()}; }
inline std::vector<std::span<const float>> views(const Tensors& tensors) { return {tensors.begin(), tensors.end()}; }

inline TrainingSetup setup_of(int servers, const UpdateOptions& update, const ConsistencyOptions& consistency = {}) {
  return {.tensor_values = kSizes,
          .shards = {.servers = servers, .values_per_block = 40},
          .groups = {update},
          .consistency = consistency};
}

/// A step with the worker's own tensors, or in memory that the servers of its host share.
inline Client::Outcome take_step(Client& client, bool in_memory, const Tensors& gradients, Tensors& parameters) {
  if (!in_memory) return client.step(views(gradients), spans(parameters));
  const Client::Values memory = client.memory();
  for (std::size_t i = 0; i < memory.size(); ++i) std::ranges::copy(gradients[i], memory[i].begin());
  Client::Outcome outcome = client.step(std::vector<std::span<const float>>(memory.begin(), memory.end()), memory);
  for (std::size_t i = 0; i < memory.size(); ++i) std::ranges::copy(memory[i], parameters[i].begin());
  return outcome;
}

/// Whether a worker's step is in memory.
using InMemory = std::function<bool(int worker, int step)>;
inline bool never(int /*worker*/, int /*step*/) { return false; }
inline bool always(int /*worker*/, int /*step*/) { return true; }
inline bool in_turns(int worker, int step) { return (worker + step) % 2 == 0; }

/// Runs `work` on each worker, together with the servers.
inline std::vector<ServerStatistics> run(const Layout& layout, const TrainingSetup& setup,
                                         const std::function<void(Client&)>& work,
                                         std::vector<std::string> host_ids = {}) {
  std::vector<ServerStatistics> statistics(static_cast<std::size_t>(layout.servers));
  group::run_in_process(
      layout.size(),
      [&](group::Group& group) {
        if (layout.is_server(group.rank())) {
          statistics[static_cast<std::size_t>(group.rank())] = serve(group, layout);
          return;
        }
        Client client(group, layout, setup);
        work(client);
      },
      std::move(host_ids));
  return statistics;
}

/// The message of the job's failure.
inline std::string failure_of(const Layout& layout, const std::function<void(group::Group&)>& worker,
                              std::vector<std::string> host_ids = {}) {
  try {
    group::run_in_process(
        layout.size(),
        [&](group::Group& group) {
          if (layout.is_server(group.rank())) {
            serve(group, layout);
          } else {
            worker(group);
          }
        },
        std::move(host_ids));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// The same training in one process: allreduce's sum, in the order of the workers, and the rule.
inline Tensors train_alone(int workers, const UpdateOptions& update, int steps) {
  Tensors parameters = first_parameters();
  const UpdateRule rule(update);
  std::vector<Tensors> slots(rule.slots(), zeros());
  for (int step = 0; step < steps; ++step) {
    std::vector<Tensors> gradients;
    for (int worker = 0; worker < workers; ++worker) gradients.push_back(gradients_of(parameters, worker, step));
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      std::vector<float> mean(parameters[i].size());
      std::vector<const std::byte*> sources;
      for (const Tensors& one : gradients) sources.push_back(reinterpret_cast<const std::byte*>(one[i].data()));
      collectives::reduce(reinterpret_cast<std::byte*>(mean.data()), sources, mean.size(),
                          collectives::DataType::kFloat32, collectives::ReduceOperation::kSum,
                          {.divisor = static_cast<double>(workers)});
      std::vector<std::span<float>> state;
      for (Tensors& slot : slots) state.emplace_back(slot[i]);
      rule.apply(parameters[i], mean, state, static_cast<std::uint64_t>(step) + 1);
    }
  }
  return parameters;
}

inline Tensors train_with_servers(const Layout& layout, const UpdateOptions& update, int steps,
                                  const InMemory& in_memory = never, std::vector<std::string> host_ids = {}) {
  std::vector<Tensors> results(static_cast<std::size_t>(layout.workers));
  run(
      layout, setup_of(layout.servers, update),
      [&](Client& client) {
        Tensors parameters = client.worker() == 0 ? first_parameters() : zeros();
        client.initialise(spans(parameters));
        for (int step = 0; step < steps; ++step) {
          const Tensors gradients = gradients_of(parameters, client.worker(), step);
          take_step(client, in_memory(client.worker(), step), gradients, parameters);
        }
        results[static_cast<std::size_t>(client.worker())] = parameters;
      },
      std::move(host_ids));
  for (const Tensors& result : results) EXPECT_EQ(result, results.front()) << "the workers' parameters differ";
  return results.front();
}

}  // namespace gyre::params

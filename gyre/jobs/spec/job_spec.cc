#include "gyre/jobs/spec/job_spec.h"

#include <algorithm>

#include "gyre/jobs/spec/internal/object_reader.h"

namespace gyre::jobs::spec {

namespace {

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};

}  // namespace

std::string words_of_image(const ContainerSettings& container) {
  return container.image.empty() && container.build ? "image of " + container.build->dockerfile
                                                    : "image " + container.image;
}

std::vector<std::string> files_of_code(const JobSpec& job) {
  std::vector<std::string> files;
  const auto add = [&](const std::string& file) {
    if (!file.empty()) files.push_back(file);
  };
  if (job.requirements) add(job.requirements->file);
  if (!job.container_settings || !job.container_settings->build) return files;
  const ImageBuild& build = *job.container_settings->build;
  add(build.requirements ? build.requirements->file : build.dockerfile);
  return files;
}

bool kept_files_are_ambiguous(const JobSpec& job) {
  const auto has_their_id = [](const OutputDirectory& output) { return same_without_case(output.id, kKeptFiles); };
  return !job.output_files.empty() && std::ranges::any_of(job.output_directories, has_their_id);
}

std::string_view tool_type(const Toolkit& toolkit) {
  return std::visit(Overloaded{
                        [](const CustomToolkitSettings&) { return "custom"; },
                        [](const CustomMpiSettings&) { return "mpi"; },
                        [](const HorovodSettings&) { return "horovod"; },
                        [](const ChainerSettings&) { return "chainer"; },
                        [](const CntkSettings&) { return "cntk"; },
                        [](const CaffeSettings&) { return "caffe"; },
                        [](const Caffe2Settings&) { return "caffe2"; },
                        [](const PyTorchSettings&) { return "pytorch"; },
                        [](const TensorFlowSettings&) { return "tensorflow"; },
                        [](const GyreSettings&) { return "gyre"; },
                    },
                    toolkit);
}

int process_count(const JobSpec& job) {
  const int nodes = job.node_count;
  return std::visit(
      Overloaded{
          [](const CustomToolkitSettings&) { return 1; },
          [&](const Caffe2Settings&) { return nodes; },
          [&](const TensorFlowSettings& settings) {
            return worker_count(settings, nodes) + parameter_server_count(settings, nodes);
          },
          [&](const GyreSettings& settings) { return nodes * settings.processes_per_node + settings.servers; },
          [&](const auto& settings) { return settings.process_count.value_or(nodes); },
      },
      job.toolkit);
}

int worker_count(const TensorFlowSettings& settings, int node_count) {
  return settings.worker_count.value_or(node_count);
}

int parameter_server_count(const TensorFlowSettings& settings, int node_count) {
  const bool distributed = node_count > 1 || worker_count(settings, node_count) > 1;
  return settings.parameter_server_count.value_or(distributed ? 1 : 0);
}

}  // namespace gyre::jobs::spec

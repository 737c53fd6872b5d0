#include "workloads/cosmoflow/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <cmath>
#include <functional>
#include <vector>

#include "gyre/base/error.h"
#include "gyre/base/file.h"
#include "gyre/base/parse.h"
#include "gyre/cli/suggest.h"

namespace gyre::cosmoflow {
namespace {

constexpr std::uint64_t kMostConfigBytes = 1 << 20;
constexpr std::int64_t kMostCount = std::int64_t{1} << 48;

/// One value of the file; its accessors say what is wrong with it and where.
class Value {
 public:
  Value(const std::string& file, std::string name, const YAML::Node& node)
      : file_(file), name_(std::move(name)), node_(node) {}

  const std::string& file() const { return file_; }
  const std::string& name() const { return name_; }
  const YAML::Node& node() const { return node_; }

  [[noreturn]] void refuse(std::string_view why) const {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}:{}: {} {}", file_, node_.Mark().line + 1, name_, why));
  }

  std::string text() const {
    if (!node_.IsScalar()) refuse("has to be a single value");
    return node_.Scalar();
  }
  std::uint64_t count(std::int64_t low) const {
    const std::string value = text();
    try {
      return static_cast<std::uint64_t>(parse_integer(value, name_, low, kMostCount));
    } catch (const Error&) {
      refuse(fmt::format("is '{}'; a whole number from {} on is needed", value, low));
    }
  }
  std::int64_t size() const { return static_cast<std::int64_t>(count(1)); }
  double number(double low) const {
    double value = 0;
    const std::string written = text();
    if (!YAML::convert<double>::decode(node_, value) || !std::isfinite(value) || value < low) {
      refuse(fmt::format("is '{}'; a number from {} on is needed", written, low));
    }
    return value;
  }
  bool flag() const {
    bool value = false;
    if (!YAML::convert<bool>::decode(node_, value)) refuse("is neither true nor false");
    return value;
  }
  /// The value has to be one of those that this program does.
  void require(const std::vector<std::string>& possible) const {
    const std::string value = text();
    for (const std::string& one : possible) {
      if (value == one) return;
    }
    refuse(fmt::format("is '{}'; gyre-cosmoflow has {} only", value, fmt::join(possible, " or ")));
  }

 private:
  const std::string& file_;
  std::string name_;
  YAML::Node node_;
};

using Fields = std::map<std::string, std::function<void(const Value&)>>;

/// Gives each entry of a mapping to the field of its name.
void read_fields(const Value& section, const Fields& fields) {
  if (!section.node().IsMap()) section.refuse("has to be a mapping");
  for (const auto& entry : section.node()) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
    const auto field = fields.find(key);
    if (field == fields.end()) {
      std::vector<std::string> known;
      for (const auto& [name, read] : fields) known.push_back(name);
      const auto near = cli::nearest(key, known);
      Value(section.file(), fmt::format("{}'{}'", section.name().empty() ? "" : section.name() + ": ", key),
            entry.first)
          .refuse(near ? fmt::format("is unknown; did you mean '{}'?", *near)
                       : fmt::format("is unknown; known are {}", fmt::join(known, ", ")));
    }
    field->second(Value(section.file(), section.name().empty() ? key : section.name() + "." + key, entry.second));
  }
}

/// What files say themselves, and what is always done.
void ignore(const Value& /*value*/) {}

/// What this program has no use for, and changes no result.
std::function<void(const Value&)> without_effect(Recipe& recipe) {
  return [&recipe](const Value& value) { recipe.without_effect.push_back(value.name()); };
}

/// [128, 128, 128, 4]
void read_shape(const Value& value, models::CosmoflowOptions& network) {
  const YAML::Node& node = value.node();
  if (!node.IsSequence() || node.size() != 4) value.refuse("has to be a list like [128, 128, 128, 4]");
  std::vector<std::int64_t> sides;
  for (const auto& side : node) sides.push_back(Value(value.file(), value.name(), side).size());
  if (sides[0] != sides[1] || sides[0] != sides[2]) value.refuse("is not a cube");
  if (network.size != 0 && (network.size != sides[0] || network.channels != sides[3])) {
    value.refuse("differs from the other shape in this file");
  }
  network.size = sides[0];
  network.channels = sides[3];
}

void read_data(const Value& section, Recipe& recipe) {
  read_fields(section, {{"name", [](const Value& v) { v.require({"cosmo"}); }},
                        {"data_dir", [&](const Value& v) { recipe.data_dir = v.text(); }},
                        {"n_train", [&](const Value& v) { recipe.n_train = v.count(1); }},
                        {"n_valid", [&](const Value& v) { recipe.n_valid = v.count(1); }},
                        {"sample_shape", [&](const Value& v) { read_shape(v, recipe.network); }},
                        {"samples_per_file", [&](const Value& v) { recipe.samples_per_file = v.count(1); }},
                        {"batch_size", [&](const Value& v) { recipe.batch_size = v.count(1); }},
                        {"n_epochs", [&](const Value& v) { recipe.epochs = v.count(1); }},
                        {"apply_log", [&](const Value& v) { recipe.apply_log = v.flag(); }},
                        {"shard",
                         [](const Value& v) {
                           if (!v.flag()) v.refuse("is false; the samples are always divided among the ranks");
                         }},
                        {"shuffle_train",
                         [](const Value& v) {
                           if (!v.flag()) v.refuse("is false; the training samples are always shuffled");
                         }},
                        {"compression", ignore},
                        {"stage_dir", without_effect(recipe)},
                        {"prefetch", without_effect(recipe)},
                        {"n_parallel_reads", without_effect(recipe)},
                        {"shuffle_buffer_size", without_effect(recipe)}});
}

void read_model(const Value& section, Recipe& recipe) {
  models::CosmoflowOptions& network = recipe.network;
  read_fields(section, {{"name", [](const Value& v) { v.require({"cosmoflow"}); }},
                        {"input_shape", [&](const Value& v) { read_shape(v, network); }},
                        {"kernel_size", [&](const Value& v) { network.kernel_size = v.size(); }},
                        {"target_size", [&](const Value& v) { network.targets = v.size(); }},
                        {"conv_size", [&](const Value& v) { network.conv_size = v.size(); }},
                        {"n_conv_layers", [&](const Value& v) { network.convolutions = v.size(); }},
                        {"fc1_size", [&](const Value& v) { network.fc1_size = v.size(); }},
                        {"fc2_size", [&](const Value& v) { network.fc2_size = v.size(); }},
                        {"l2", [&](const Value& v) { recipe.l2 = v.number(0); }},
                        {"dropout", [&](const Value& v) { network.dropout = v.number(0); }},
                        {"hidden_activation", [](const Value& v) { v.require({"LeakyReLU"}); }},
                        {"pooling_type", [](const Value& v) { v.require({"MaxPool3D"}); }}});
}

void read_schedule(const Value& section, Recipe& recipe) {
  recipe.decay_schedule.clear();
  recipe.warmup_epochs = 0;
  recipe.scaling = Scaling::kNone;
  read_fields(section, {{"base_lr", [&](const Value& v) { recipe.base_lr = v.number(0); }},
                        {"scaling",
                         [&](const Value& v) {
                           v.require({"linear", "sqrt"});
                           recipe.scaling = v.text() == "sqrt" ? Scaling::kSqrt : Scaling::kLinear;
                         }},
                        {"base_batch_size", [&](const Value& v) { recipe.base_batch_size = v.count(1); }},
                        {"n_warmup_epochs", [&](const Value& v) { recipe.warmup_epochs = v.count(0); }},
                        {"decay_schedule", [&](const Value& v) {
                           if (!v.node().IsMap()) v.refuse("has to be a mapping from epochs to factors");
                           for (const auto& entry : v.node()) {
                             const Value epoch(v.file(), v.name(), entry.first);
                             recipe.decay_schedule[epoch.count(0)] = Value(v.file(), v.name(), entry.second).number(0);
                           }
                         }}});
}

/// `optimizer.lr` counts where there is no schedule, and stays as it is.
void read_optimizer(const Value& section, Recipe& recipe, bool scheduled) {
  read_fields(section, {{"name", [](const Value& v) { v.require({"SGD"}); }},
                        {"momentum", [&](const Value& v) { recipe.momentum = v.number(0); }},
                        {"lr", [&](const Value& v) {
                           const double rate = v.number(0);
                           if (scheduled) return recipe.without_effect.push_back(v.name());
                           recipe.base_lr = rate;
                           recipe.scaling = Scaling::kNone;
                           recipe.warmup_epochs = 0;
                           recipe.decay_schedule.clear();
                         }}});
}

void read_training(const Value& section, Recipe& recipe) {
  read_fields(section,
              {{"loss", [](const Value& v) { v.require({"mse"}); }},
               {"metrics", ignore},
               {"target_mae", [&](const Value& v) { recipe.target = {.metric = "mae", .value = v.number(0)}; }},
               {"early_stopping_patience",
                [](const Value& v) { v.refuse("is not supported: give train.target_mae, or fewer n_epochs"); }}});
}

}  // namespace

Recipe::Recipe() {
  program = "gyre-cosmoflow";
  samples = "volumes";
  output_dir = "results/cosmo-000";
  batch_size = 4;
  epochs = 128;
  warmup_epochs = 4;
}

double peak_learning_rate(const Recipe& recipe, std::uint64_t global_batch) {
  const double factor = static_cast<double>(global_batch) / static_cast<double>(recipe.base_batch_size);
  switch (recipe.scaling) {
    case Scaling::kNone: return recipe.base_lr;
    case Scaling::kLinear: return recipe.base_lr * factor;
    case Scaling::kSqrt: return recipe.base_lr * std::sqrt(factor);
  }
  return recipe.base_lr;
}

void read_config(const std::filesystem::path& path, Recipe& recipe) {
  const Bytes bytes = read_file(path, kMostConfigBytes);
  const std::string file = path.string();
  try {
    const YAML::Node root = YAML::Load(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    const bool scheduled = root.IsMap() && root["lr_schedule"].IsDefined();
    read_fields(Value(file, "", root), {{"output_dir", [&](const Value& v) { recipe.output_dir = v.text(); }},
                                        {"mlperf", without_effect(recipe)},
                                        {"data", [&](const Value& v) { read_data(v, recipe); }},
                                        {"model", [&](const Value& v) { read_model(v, recipe); }},
                                        {"optimizer", [&](const Value& v) { read_optimizer(v, recipe, scheduled); }},
                                        {"lr_schedule", [&](const Value& v) { read_schedule(v, recipe); }},
                                        {"train", [&](const Value& v) { read_training(v, recipe); }}});
  } catch (const YAML::Exception& error) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}:{}: {}", file, error.mark.line + 1, error.msg));
  }
}

std::map<std::string, std::string> result_options(const Recipe& recipe, int ranks) {
  const models::CosmoflowOptions& network = recipe.network;
  std::map<std::string, std::string> record = {
      {"--n-train", fmt::format("{}", recipe.n_train)},
      {"--n-valid", fmt::format("{}", recipe.n_valid)},
      {"--samples-per-file", fmt::format("{}", recipe.samples_per_file)},
      {"--apply-log", fmt::format("{}", recipe.apply_log)},
      {"--augment", fmt::format("{}", recipe.augment)},
      {"--dropout", fmt::format("{}", network.dropout)},
      {"--l2", fmt::format("{}", recipe.l2)},
      {"--lr", fmt::format("{}", recipe.base_lr)},
      {"--base-batch-size", fmt::format("{}", recipe.base_batch_size)},
      {"momentum", fmt::format("{}", recipe.momentum)},
      {"scaling", fmt::format("{}", static_cast<int>(recipe.scaling))},
      {"decay_schedule", fmt::format("{}", recipe.decay_schedule)},
      {"network", fmt::format("size {} channels {} conv {}x{} kernel {} fc {} {} out {}", network.size,
                              network.channels, network.convolutions, network.conv_size, network.kernel_size,
                              network.fc1_size, network.fc2_size, network.targets)}};
  record.merge(training::result_options(recipe, ranks));
  return record;
}

}  // namespace gyre::cosmoflow

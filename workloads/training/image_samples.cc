#include "workloads/training/image_samples.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "gyre/base/error.h"
#include "gyre/data/data_sets.h"
#include "gyre/data/image_listing.h"
#include "gyre/data/parquet_set.h"
#include "gyre/data/readable_file.h"
#include "gyre/data/stratified_split.h"

namespace gyre::training {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kProbeBytes = std::uint64_t{1} << 30;

/// What data::open_samples() is given for a set.
std::vector<std::string> files_of(const data::SetPlace& place, const data::FileOpener& open) {
  return place.is_folder ? data::files_of_folder(place.paths.front(), open) : place.paths;
}

/// A folder of images without class folders, as competitions have them for testing.
bool is_unlabelled(const std::vector<std::string>& files, const data::Folders& folders) {
  if (files.size() != 1 || folders.kind(files.front()) != data::FileKind::kFolder) return false;
  data::LeftOut left_out;
  return data::entries_of(folders, files.front(), left_out).folders.empty();
}

void require_labels(const std::vector<std::string>& files, const data::Folders& folders) {
  if (!is_unlabelled(files, folders)) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("the images in {} have no labels: a training or validation set has a folder for each class. "
                          "(--validation-share 0.1 validates with a part of the training set)",
                          files.front()));
}

std::string shortened(const std::vector<std::string>& names, std::size_t most = 5) {
  const auto shown = std::span(names).first(std::min(names.size(), most));
  return fmt::format("{}{}", fmt::join(shown, ", "), shown.size() < names.size() ? ", …" : "");
}

/// Archives often have everything in one more folder, which looks like the only class.
std::string hint_on_folder_inside(const fs::path& data_dir, const data::Folders& folders,
                                  const std::vector<std::string>& classes) {
  if (classes.size() != 1) return "";
  const std::string inside = (data_dir / classes.front()).string();
  data::LeftOut left_out;
  const bool there = folders.kind(inside) == data::FileKind::kFolder;
  if (!there || data::entries_of(folders, inside, left_out).folders.empty()) return "";
  return fmt::format(". If {} holds the data set, give it instead", inside);
}

/// `sets` has no training set, or else none to validate with.
[[noreturn]] void refuse_missing(const ImageProgramOptions& options, const ImageLayout& layout,
                                 const data::DataSets& sets) {
  const fs::path& data_dir = options.data_dir;
  const std::string others = layout.others.empty() ? "" : layout.others + " nor ";
  const std::string_view missing = sets.training ? "a folder validation (or val, valid or test) nor files validation-*"
                                                 : "a folder train nor files train-*";
  std::string text = fmt::format("{} has neither {}{}", data_dir.string(), others, missing);
  const std::string inside =
      sets.training ? "" : hint_on_folder_inside(data_dir, options.files.folders(), sets.classes);
  if (!inside.empty()) {
    text += inside;
  } else if (sets.training || !sets.classes.empty()) {
    text += fmt::format(". To train with a part of {} and validate with the rest, add --validation-share 0.1",
                        sets.training ? sets.training->name : fmt::format("its folders ({})", shortened(sets.classes)));
  } else {
    text += fmt::format("; `python -m gyre.datasets {} --out {}` writes such a data set", layout.example,
                        data_dir.string());
  }
  throw Error(ErrorCode::kNotFound, text);
}

/// Which sets are used, and which are there too.
std::string describe(const data::DataSets& sets, const ImageProgramOptions& options) {
  const std::string validation =
      options.validation_share ? fmt::format("validation: {} of {}", *options.validation_share, sets.training->name)
                               : fmt::format("validation: {}", sets.validation->name);
  const std::string aside = sets.left_aside.empty() ? "" : fmt::format("; left aside: {}", shortened(sets.left_aside));
  return fmt::format("training: {}; {}{}", sets.training->name, validation, aside);
}

/// A validation set that is a link to the training set says nothing.
void add_same_set(const data::DataSets& sets, const data::Folders& folders, std::vector<std::string>& remarks) {
  if (folders.real_name(sets.training->paths.front()) != folders.real_name(sets.validation->paths.front())) return;
  remarks.push_back(
      fmt::format("{} and {} are the same images (a link): the network is validated with what it has "
                  "learnt from",
                  sets.training->name, sets.validation->name));
}

void add_classes(const data::SampleSet& train, std::vector<std::string>& remarks) {
  constexpr std::size_t kMostShown = 20;
  const std::vector<std::string> classes = train.classes();
  if (!classes.empty()) remarks.push_back("classes: " + shortened(classes, kMostShown));
}

/// Classes of `train` without an image in `test`, where both have class folders.
void add_missing_classes(const data::SampleSet& train, const data::SampleSet& test, std::vector<std::string>& remarks) {
  const std::vector<std::string> classes = train.classes();
  if (classes.empty() || test.labels().empty()) return;
  std::vector<bool> validated(classes.size());
  for (const std::uint32_t label : test.labels()) {
    if (label < validated.size()) validated[label] = true;
  }
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    if (!validated[i]) missing.push_back(classes[i]);
  }
  if (missing.empty()) return;
  remarks.push_back(fmt::format("without a validation image: {} ({} of {} classes)", shortened(missing), missing.size(),
                                classes.size()));
}

void add_left_out(const data::SampleSet& set, std::string_view of, std::vector<std::string>& remarks) {
  const std::string left_out = set.left_out();
  if (!left_out.empty()) remarks.push_back(fmt::format("left out of {}: {}", of, left_out));
}

data::SampleOptions how_to_open(const ImageProgramOptions& options) {
  return {.threads = options.threads, .pyarrow_folder = data::pyarrow_folder_from_environment()};
}

/// A part of the training set, held out. Competitions' validation images, which have no labels, do not stand in the
/// way.
ImageSets split_images(data::DataSets places, const ImageProgramOptions& options) {
  const fs::path& data_dir = options.data_dir;
  if (places.validation) {
    if (!is_unlabelled(files_of(*places.validation, options.files), options.files.folders())) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} has a validation set ({}): leave out --validation-share, which takes one from the "
                              "training set, or move it away",
                              data_dir.string(), places.validation->name));
    }
    places.left_aside.push_back(places.validation->name);
  }
  const std::vector<std::string> files = files_of(*places.training, options.files);
  require_labels(files, options.files.folders());
  const data::SampleOptions how = how_to_open(options);
  const auto whole = data::open_samples(files, options.files, how);
  const data::SplitSets parts = data::split_set(whole, *options.validation_share, options.seed);
  ImageSets sets{.train = parts.training,
                 .test = parts.validation,
                 .test_name = "validation",
                 .digests = digests_of(files, options.files, parts.training, how),
                 .remarks = {describe(places, options)}};
  add_classes(*whole, sets.remarks);
  add_left_out(*whole, files.front(), sets.remarks);
  return sets;
}

/// Two sets of their own.
ImageSets separate_images(const data::DataSets& places, const ImageProgramOptions& options) {
  const std::vector<std::string> files = files_of(*places.training, options.files);
  const std::vector<std::string> held = files_of(*places.validation, options.files);
  require_labels(files, options.files.folders());
  require_labels(held, options.files.folders());
  data::SampleOptions how = how_to_open(options);
  const auto train = data::open_samples(files, options.files, how);
  DigestSamples digests = digests_of(files, options.files, train, how);
  how.classes = train->classes();
  ImageSets sets{.train = train,
                 .test = data::open_samples(held, options.files, how),
                 .test_name = places.validation_is_test_set ? "test" : "validation",
                 .digests = std::move(digests),
                 .remarks = {describe(places, options)}};
  add_same_set(places, options.files.folders(), sets.remarks);
  add_classes(*sets.train, sets.remarks);
  add_left_out(*sets.train, "the training set", sets.remarks);
  add_left_out(*sets.test, fmt::format("the {} set", sets.test_name), sets.remarks);
  return sets;
}

/// Whether a name has letters that are written as a letter and an accent: U+0300 to U+036F, or Japanese voice marks.
bool is_decomposed(const std::string& name) {
  for (std::size_t i = 0; i + 1 < name.size(); ++i) {
    const std::string_view bytes = std::string_view(name).substr(i, 3);
    if (bytes[0] == '\xcc' || (bytes[0] == '\xcd' && bytes[1] < '\xb0')) return true;
    if (bytes == "\xe3\x82\x99" || bytes == "\xe3\x82\x9a") return true;
  }
  return false;
}

/// Names that look the same, and are not.
std::string_view hint_on_letters(const std::vector<std::string>& others, const std::vector<std::string>& classes) {
  const bool differ = std::ranges::any_of(others, is_decomposed) != std::ranges::any_of(classes, is_decomposed);
  return differ ? ". Some of these names have accents as characters of their own (Unicode NFD, as macOS writes it) and "
                  "others do not, so names that look the same are different ones; rename these folders"
                : "";
}

/// As many as the folders of the training set, among which those of the other have to be; or `otherwise` where the data
/// does not say.
std::int64_t class_count(const ImageSets& sets, const data::Folders& folders, std::int64_t otherwise) {
  const std::vector<std::string> classes = sets.train->classes();
  const std::vector<std::string> tested = sets.test->classes();
  if (classes.empty() != tested.empty()) {
    throw Error(ErrorCode::kMismatch,
                fmt::format("{}: the {} set has a folder for each class, and the other has labels "
                            "in its files, so classes cannot be compared",
                            sets.folder.string(), classes.empty() ? sets.test_name : "training"));
  }
  if (tested.size() > classes.size()) {
    const std::vector<std::string> others(tested.begin() + static_cast<std::ptrdiff_t>(classes.size()), tested.end());
    throw Error(
        ErrorCode::kMismatch,
        fmt::format("{}: the {} set has classes that the training set lacks: {}. It has: {}{}", sets.folder.string(),
                    sets.test_name, shortened(others), shortened(classes), hint_on_letters(others, classes)));
  }
  if (classes.size() == 1) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}: all training images are of one class ({}); a classifier needs two or more class "
                    "folders{}",
                    sets.folder.string(), classes.front(), hint_on_folder_inside(sets.folder, folders, classes)));
  }
  return classes.empty() ? otherwise : static_cast<std::int64_t>(classes.size());
}

/// An image of `how.height` x `how.width`, its values of `type`, and its label.
std::vector<data::Field> image_fields(const data::SampleSet& set, const data::ImageOptions& how,
                                      data::ElementType type) {
  const auto reader = set.make_reader(std::make_shared<data::MemoryBudget>(kProbeBytes));
  data::StageTimes times;
  const data::Example sample = reader->read_sample(0, times);
  const bool imagenet = sample.find("image/encoded") != nullptr;
  if (!imagenet && sample.find("label") == nullptr) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: the image has no label; a folder of images needs a folder for each class",
                            reader->position()));
  }
  const std::vector<std::uint64_t> planes = {3, how.height, how.width};
  const std::vector<std::uint64_t> interleaved = {how.height, how.width, 3};
  data::Field image{.name = "image",
                    .kind = data::FeatureKind::kBytes,
                    .type = type,
                    .shape = how.channels_first ? planes : interleaved,
                    .feature = imagenet ? "image/encoded" : "",
                    .image = how};
  data::Field label{.name = "label",
                    .kind = data::FeatureKind::kInts,
                    .stored = data::ElementType::kInt64,
                    .type = data::ElementType::kInt64,
                    .shape = {},
                    .feature = imagenet ? "image/class/label" : "",
                    .offset = imagenet ? -1 : 0};
  return {std::move(image), std::move(label)};
}

}  // namespace

ImageSets open_image_sets(const ImageProgramOptions& options, const ImageLayout& layout) {
  const bool hold_out = options.validation_share.has_value();
  const data::DataSets places = data::find_data_sets(options.files.folders(), options.data_dir.string(), hold_out);
  if (!places.training || !(hold_out || places.validation)) refuse_missing(options, layout, places);
  ImageSets sets = hold_out ? split_images(places, options) : separate_images(places, options);
  add_missing_classes(*sets.train, *sets.test, sets.remarks);
  sets.folder = options.data_dir;
  sets.classes = class_count(sets, options.files.folders(), options.classes);
  return completed(std::move(sets), options, layout);
}

ImageSets completed(ImageSets sets, const ImageProgramOptions& options, const ImageLayout& layout) {
  sets.train_fields = image_fields(*sets.train, layout.train_images, layout.type);
  sets.test_fields = image_fields(*sets.test, layout.test_images, layout.type);
  const std::string advice = sets.train->advice_on_full_shuffle(options.memory_budget_bytes);
  if (!advice.empty()) sets.remarks.push_back(fmt::format("the images are shuffled in blocks: {}", advice));
  return sets;
}

std::string describe(const ImageSets& sets, std::string_view program) {
  std::string lines =
      fmt::format("{}: {} training images, {} {} images, {} classes, from {}", program, sets.train->count(),
                  sets.test->count(), sets.test_name, sets.classes, sets.folder.string());
  for (const std::string& remark : sets.remarks) lines += "\n" + remark;
  return lines;
}

at::Tensor labels_of(const data::Batch& batch, std::int64_t classes) {
  const auto count = static_cast<std::int64_t>(batch.samples().counted);
  at::Tensor labels = at::from_blob(batch.field(kLabel).data(), {count}, at::TensorOptions(at::kLong));
  const auto highest = labels.max().item<std::int64_t>();
  const auto lowest = labels.min().item<std::int64_t>();
  if (lowest >= 0 && highest < classes) return labels;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("a sample has the label {}, and the network has {} classes, counted from 0: see --classes",
                          lowest < 0 ? lowest : highest, classes));
}

}  // namespace gyre::training

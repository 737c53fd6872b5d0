#include "python/gyre/core/data_binding.h"

#include <fmt/format.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gyre/base/cores.h"
#include "gyre/base/error.h"
#include "gyre/data/file_names.h"
#include "gyre/data/formats/cifar10.h"
#include "gyre/data/formats/example.h"
#include "gyre/data/formats/tfrecord.h"
#include "gyre/data/loader.h"
#include "gyre/data/open_samples.h"
#include "gyre/data/synthetic_images.h"
#include "gyre/store/node/data_files.h"
#include "gyre/store/reading/data_files.h"
#include "gyre/train/data_timeline.h"
#include "python/gyre/core/evaluated_files.h"
#include "python/gyre/core/interruptible.h"
#include "python/gyre/core/memory_binding.h"
#include "python/gyre/core/process_bound.h"
#include "python/gyre/core/shared_timeline.h"

namespace gyre::python {
namespace {

using data::ElementType;

/// ImageOptions as Python hands them over: height and width, augment, resize, area, aspect, probability of a flip,
/// whether JPEGs are decoded at a reduced size, channels first, mean, standard deviation, and how pixels are resampled.
using Range = std::pair<double, double>;
using Channels = std::array<float, 3>;
using ImageTuple = std::tuple<std::uint32_t, std::uint32_t, bool, std::uint32_t, Range, Range, double, bool, bool,
                              Channels, Channels, std::string>;

/// A FillValue: the integer and the real number.
using FillTuple = std::pair<std::int64_t, double>;

/// What Python hands over: name, kind ("bytes", "floats", "ints"), stored and batch type, shape, transform ("" or
/// "log1p"), the feature's name ("" where it is the field's), what is added to integers, what is made of an image, the
/// scale, what fills a feature up and what stands for a missing one, and whether its length is wanted.
using FieldTuple = std::tuple<std::string, std::string, std::string, std::string, std::vector<std::uint64_t>,
                              std::string, std::string, std::int64_t, std::optional<ImageTuple>, float,
                              std::optional<FillTuple>, std::optional<FillTuple>, bool>;

/// The value that is called `name`; Error names the others.
template <typename Value, std::size_t Count>
Value named(const std::array<std::pair<const char*, Value>, Count>& values, const std::string& name, const char* what) {
  std::string all;
  for (const auto& [known, value] : values) {
    if (name == known) return value;
    all += (all.empty() ? "'" : ", '") + std::string(known) + "'";
  }
  throw Error(ErrorCode::kInvalidArgument, std::string(what) + " '" + name + "' is none of " + all);
}

constexpr std::array kTypes = {
    std::pair("uint8", ElementType::kUint8),     std::pair("int16", ElementType::kInt16),
    std::pair("int32", ElementType::kInt32),     std::pair("int64", ElementType::kInt64),
    std::pair("float32", ElementType::kFloat32), std::pair("bfloat16", ElementType::kBfloat16),
    std::pair("float16", ElementType::kFloat16)};
constexpr std::array kKinds = {std::pair("bytes", data::FeatureKind::kBytes),
                               std::pair("floats", data::FeatureKind::kFloats),
                               std::pair("ints", data::FeatureKind::kInts)};
constexpr std::array kTransforms = {std::pair("", data::ValueTransform::kNone),
                                    std::pair("log1p", data::ValueTransform::kLog1p)};
constexpr std::array kResamples = {std::pair("bilinear", data::Resample::kBilinear),
                                   std::pair("nearest", data::Resample::kNearest)};
constexpr std::array kShufflings = {std::pair("none", data::Shuffling::kNone),
                                    std::pair("full", data::Shuffling::kFull),
                                    std::pair("block", data::Shuffling::kBlocks)};
constexpr std::array kFormats = {std::pair("auto", data::SampleFormat::kByContent),
                                 std::pair("tfrecord", data::SampleFormat::kTfRecord),
                                 std::pair("folder", data::SampleFormat::kImageFolder),
                                 std::pair("images", data::SampleFormat::kImages),
                                 std::pair("tar", data::SampleFormat::kTar),
                                 std::pair("idx", data::SampleFormat::kIdx),
                                 std::pair("cifar10", data::SampleFormat::kCifar10),
                                 std::pair("parquet", data::SampleFormat::kParquet)};
constexpr std::array kCompressions = {std::pair("", data::Compression::kNone),
                                      std::pair("gzip", data::Compression::kGzip),
                                      std::pair("zlib", data::Compression::kZlib)};

data::ImageOptions to_image(const ImageTuple& tuple) {
  const auto& [height, width, augment, resize, area, aspect, mirror, reduced, channels_first, mean, deviation,
               resample] = tuple;
  return {.width = width,
          .height = height,
          .augment = augment,
          .resize = resize,
          .resample = named(kResamples, resample, "resample"),
          .least_area = area.first,
          .most_area = area.second,
          .least_aspect = aspect.first,
          .most_aspect = aspect.second,
          .mirror_probability = mirror,
          .reduced_decode = reduced,
          .channels_first = channels_first,
          .mean = mean,
          .deviation = deviation};
}

std::vector<data::Field> to_fields(const std::vector<FieldTuple>& tuples) {
  std::vector<data::Field> fields;
  const auto fill_of = [](const std::optional<FillTuple>& value) {
    return value ? std::optional(data::FillValue{value->first, value->second}) : std::nullopt;
  };
  for (const auto& [name, kind, stored, type, shape, transform, feature, offset, image, scale, pad, missing, length] :
       tuples) {
    fields.push_back({.name = name,
                      .kind = named(kKinds, kind, "the kind of a field"),
                      .stored = named(kTypes, stored, "the stored type of a field"),
                      .type = named(kTypes, type, "the type of a field"),
                      .shape = shape,
                      .transform = named(kTransforms, transform, "the transform of a field"),
                      .feature = feature,
                      .offset = offset,
                      .scale = scale,
                      .pad = fill_of(pad),
                      .missing = fill_of(missing),
                      .length = length,
                      .image = image ? std::optional(to_image(*image)) : std::nullopt});
  }
  return fields;
}

/// Names of files are bytes: `errors` says what becomes of those that are not UTF-8.
nanobind::object to_text(const std::string& name, const char* errors) {
  PyObject* const text = PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()), errors);
  if (text == nullptr) throw nanobind::python_error();
  return nanobind::steal(text);
}

/// Paths are bytes (os.fsencode), which need not be UTF-8.
std::vector<std::string> to_paths(const std::vector<nanobind::bytes>& names) {
  std::vector<std::string> paths;
  for (const nanobind::bytes& name : names) paths.emplace_back(name.c_str(), name.size());
  return paths;
}

nanobind::bytes to_bytes(const std::string& text) { return nanobind::bytes(text.data(), text.size()); }

std::vector<nanobind::bytes> to_bytes(const std::vector<std::string>& texts) {
  std::vector<nanobind::bytes> all;
  for (const std::string& text : texts) all.push_back(to_bytes(text));
  return all;
}

/// store::DataFiles, as Python and the loaders that it makes share them.
class DataFiles {
 public:
  explicit DataFiles(std::uint64_t budget_bytes)
      : files_(std::make_shared<store::DataFiles>(store::node::data_files_from_environment(budget_bytes))) {}

  nanobind::bytes add(const nanobind::bytes& name) { return to_bytes(files_->add({name.c_str(), name.size()})); }
  std::vector<nanobind::bytes> find(const nanobind::bytes& name) {
    const auto found = run_interruptibly([files = files_, given = files_->add({name.c_str(), name.size()})] {
      return data::find_files(given, files->opener());
    });
    return to_bytes(found);
  }
  std::vector<nanobind::bytes> find_evaluated(const nanobind::bytes& name) {
    const auto found = run_interruptibly([files = files_, given = files_->add({name.c_str(), name.size()})] {
      return evaluated_files(given, files->opener());
    });
    return to_bytes(found);
  }
  std::vector<nanobind::bytes> cifar10_class_names(const nanobind::bytes& folder) {
    const auto found = run_interruptibly([files = files_, given = files_->add({folder.c_str(), folder.size()})] {
      return data::cifar10_class_names(given, files->opener());
    });
    return to_bytes(found);
  }
  const std::shared_ptr<store::DataFiles>& shared() const { return files_; }

 private:
  std::shared_ptr<store::DataFiles> files_;
};

/// One file, for Python's file objects.
class DataFile {
 public:
  explicit DataFile(const nanobind::bytes& name) : files_(std::uint64_t{256} << 20) {
    file_ = run_interruptibly([files = files_.shared(), given = files_.shared()->add({name.c_str(), name.size()})] {
      return std::shared_ptr<const data::ReadableFile>(files->opener()(given));
    });
  }
  ~DataFile() { files_.shared()->stop(); }
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;

  std::uint64_t size_bytes() const { return file_->size_bytes(); }
  std::string version() const { return file_->version(); }
  nanobind::object name() const { return to_text(file_->name(), "surrogateescape"); }
  /// Fewer at the end.
  nanobind::bytes read(std::uint64_t offset_bytes, std::uint64_t most_bytes) const {
    const std::uint64_t left = file_->size_bytes() - std::min(offset_bytes, file_->size_bytes());
    const Bytes bytes = run_interruptibly([file = file_, offset_bytes, size = std::min(most_bytes, left)] {
      Bytes into(static_cast<std::size_t>(size));
      file->read_at(offset_bytes, into);
      return into;
    });
    return nanobind::bytes(bytes.data(), bytes.size());
  }

 private:
  DataFiles files_;
  std::shared_ptr<const data::ReadableFile> file_;
};

/// A loader and what Python asks of it.
class DataLoader {
 public:
  DataLoader(const DataFiles& places, std::vector<std::string> files, data::SampleOptions samples,
             const std::vector<FieldTuple>& fields, const data::LoaderOptions& options)
      : files_(places.shared()) {
    std::vector<data::Field> wanted = to_fields(fields);
    for (const data::Field& field : wanted) samples.features.push_back(field.feature_name());
    loader_ = open(std::move(files), samples, std::move(wanted), options);
  }

  /// What its threads wait for from afar ends first.
  ~DataLoader() { files_->stop(); }
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  data::Loader& loader() { return *loader_; }
  const std::uint64_t& count() const { return count_; }
  nanobind::list classes() const {
    nanobind::list names;
    for (const std::string& name : set_->classes()) names.append(to_text(name, "replace"));
    return names;
  }
  nanobind::object name_of(std::uint64_t sample) const {
    if (sample >= count_) throw nanobind::index_error("there is no such sample");
    return to_text(set_->name_of(sample), "surrogateescape");
  }
  std::string left_out() const { return set_->left_out(); }
  std::vector<std::uint64_t> samples_per_class() const {
    std::vector<std::uint64_t> counts(set_->labels().empty() ? 0 : set_->classes().size());
    for (const std::uint32_t label : set_->labels()) ++counts.at(label);
    return counts;
  }
  const std::string& advice() const { return advice_; }
  const std::string& files_checksum() const { return files_checksum_; }

  /// (fields, step, samples in the batch, those that count, and over all ranks), or nothing. With one rank the batch
  /// ends where its padding would begin.
  using Next = std::tuple<std::vector<Memory>, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>;
  std::optional<Next> next() {
    auto batch = next_batch();
    if (!batch) return std::nullopt;
    const auto owner = std::make_shared<const data::Batch>(std::move(*batch));
    wait_ = owner->wait();
    std::vector<Memory> fields;
    for (std::size_t i = 0; i < loader_->fields().size(); ++i) fields.push_back({owner->field(i), owner});
    const data::RankBatch& samples = owner->samples();
    const std::uint64_t size = ranks_ == 1 ? samples.present : samples.samples.size();
    return Next(std::move(fields), owner->step(), size, samples.counted, samples.counted_globally);
  }

  /// Shows the wait for the last batch in the timeline of the job.
  void add_wait_to_timeline(const RuntimeOwner& runtime, const std::string& row) const {
    if (runtime.is_here()) train::add_wait_to_timeline(runtime.get().engine(), row, wait_);
  }
  void add_wait_to(const SharedTimeline& shared, const std::string& row) const {
    train::add_wait_to_timeline(*shared.timeline, row, wait_);
  }

 private:
  std::optional<data::Batch> next_batch() {
    const nanobind::gil_scoped_release released;
    return loader_->next([] {
      const nanobind::gil_scoped_acquire acquired;
      if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
    });
  }

  std::unique_ptr<data::Loader> open(std::vector<std::string> files, const data::SampleOptions& samples,
                                     std::vector<data::Field> fields, data::LoaderOptions options) {
    const data::FileOpener opener = files_->opener();
    options.read_ahead_bytes = store::read_ahead_bytes(opener, options.memory_budget_bytes);
    // Counting the records of a large set takes its time; Ctrl-C ends the wait for it.
    ranks_ = options.sampling.ranks;
    auto [opened_loader, opened_set, found_advice, found_checksum] =
        run_interruptibly([opener, files = std::move(files), samples, fields = std::move(fields), options]() mutable {
          auto opened = data::open_samples(files, opener, samples);
          std::string advice;
          if (options.sampling.shuffling == data::Shuffling::kFull) {
            advice = opened->advice_on_full_shuffle(options.memory_budget_bytes);
          }
          auto loader = std::make_unique<data::Loader>(opened, std::move(fields), options);
          const std::uint64_t checksum = data::files_checksum(files, opener, *opened, samples);
          return std::tuple(std::move(loader), opened, std::move(advice), checksum);
        });
    files_checksum_ = fmt::format("{:016x}", found_checksum);
    set_ = std::move(opened_set);
    count_ = set_->count();
    advice_ = std::move(found_advice);
    return std::move(opened_loader);
  }

  std::shared_ptr<store::DataFiles> files_;
  std::shared_ptr<const data::SampleSet> set_;
  std::uint64_t count_ = 0;
  std::string advice_;
  std::string files_checksum_;
  int ranks_ = 1;
  data::BatchWait wait_;
  std::unique_ptr<data::Loader> loader_;
};

double seconds(std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); }

nanobind::dict to_dict(const data::StallLedger& ledger) {
  nanobind::dict stages;
  nanobind::dict waits;
  for (std::size_t i = 0; i < data::kStages; ++i) {
    const std::string name(data::kStageNames.at(i));
    stages[name.c_str()] = seconds(ledger.worked.spent.at(i));
    waits[name.c_str()] = seconds(ledger.waited_for.spent.at(i));
  }
  nanobind::dict result;
  result["batches"] = ledger.batches;
  result["waited"] = seconds(ledger.waited);
  result["first_batch"] = seconds(ledger.first_batch);
  result["damaged"] = ledger.damaged;
  result["first_damage"] = ledger.first_damage;
  result["waited_for"] = waits;
  result["worked"] = stages;
  return result;
}

void write_records(const std::string& path, const std::vector<nanobind::bytes>& records, const std::string& compression,
                   int level) {
  std::vector<Bytes> payloads;
  for (const nanobind::bytes& record : records) {
    const auto text = as_bytes(std::string_view(record.c_str(), record.size()));
    payloads.emplace_back(text.begin(), text.end());
  }
  const data::Compression kind = named(kCompressions, compression, "the compression");
  const nanobind::gil_scoped_release released;
  data::write_tfrecords(path, payloads, kind, level);
}

/// (JPEG, label, width, height)
std::tuple<nanobind::bytes, std::uint32_t, std::uint32_t, std::uint32_t> make_image(
    std::uint64_t seed, std::uint32_t classes, std::uint32_t size, std::uint32_t stream, std::uint64_t index) {
  data::SyntheticImage image;
  {
    const nanobind::gil_scoped_release released;
    image = data::synthetic_image({.seed = seed, .classes = classes, .long_side = size}, stream, index);
  }
  return {nanobind::bytes(image.jpeg.data(), image.jpeg.size()), image.label, image.width, image.height};
}

template <typename T>
std::vector<T> values_of(std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

/// Features as (name, kind, value); floats and integers as the bytes of float32 and int64.
nanobind::bytes encode_example(const std::vector<std::tuple<std::string, std::string, nanobind::bytes>>& features) {
  data::ExampleWriter writer;
  for (const auto& [name, kind, value] : features) {
    const auto bytes = as_bytes(std::string_view(value.c_str(), value.size()));
    switch (named(kKinds, kind, "the kind of a feature")) {
      case data::FeatureKind::kFloats: writer.add_floats(name, values_of<float>(bytes)); break;
      case data::FeatureKind::kInts: writer.add_ints(name, values_of<std::int64_t>(bytes)); break;
      default: writer.add_bytes(name, bytes);
    }
  }
  const Bytes example = writer.take();
  return nanobind::bytes(example.data(), example.size());
}

void bind_files(nanobind::module_& module) {
  namespace nb = nanobind;
  nb::class_<DataFiles>(module, "DataFiles", "Files of this machine and of sources: gyre::store::DataFiles.")
      .def(nb::init<std::uint64_t>(), nb::arg("memory_budget"))
      .def("add", &DataFiles::add, nb::arg("name"),
           "The name under which it is found, without what is secret in a URL.")
      .def("find", &DataFiles::find, nb::arg("name"),
           "What a loader is given for the name of a folder or a file, or a pattern.")
      .def("cifar10_class_names", &DataFiles::cifar10_class_names, nb::arg("folder"),
           "The names of the classes 0, 1, … in a folder of CIFAR-10's files; empty where it lists none.")
      .def("find_evaluated", &DataFiles::find_evaluated, nb::arg("name"),
           "The validation or test files of a folder that a training program accepts; empty if it is no such folder.");
  nb::class_<DataFile>(module, "DataFile", "A file of this machine or of a source.")
      .def(nb::init<const nb::bytes&>(), nb::arg("name"))
      .def_prop_ro("name", &DataFile::name)
      .def_prop_ro("size", &DataFile::size_bytes)
      .def_prop_ro("version", &DataFile::version)
      .def("read", &DataFile::read, nb::arg("offset"), nb::arg("most"));
}

/// What a loader says about its samples' files.
void bind_names(nanobind::class_<DataLoader>& loader) {
  loader.def_prop_ro("classes", &DataLoader::classes, "Names by label, where the files say them.")
      .def_prop_ro("samples_per_class", &DataLoader::samples_per_class)
      .def_prop_ro("left_out", &DataLoader::left_out, "What a folder holds beside the samples; empty: nothing.")
      .def("name_of", &DataLoader::name_of, nanobind::arg("sample"), "Its file, or its file and its number there.");
}

}  // namespace

void bind_data(nanobind::module_& module) {
  namespace nb = nanobind;
  bind_files(module);
  nb::class_<DataLoader> loader(module, "DataLoader", "gyre::data::Loader; see gyre.data.");
  bind_names(loader);
  loader
      .def(
          "__init__",
          [](DataLoader* self, const std::vector<nb::bytes>& files, const DataFiles& places, const std::string& format,
             std::uint64_t records_per_file, const std::vector<FieldTuple>& fields, std::uint64_t batch_size,
             const std::string& shuffle, std::uint64_t seed, bool drop_last, std::uint64_t streams,
             std::uint64_t open_blocks, int rank, int ranks, int threads, std::uint64_t memory_budget,
             std::uint64_t prefetch, bool replace_damaged, const std::string& pyarrow_folder,
             std::vector<std::string> classes) {
            data::LoaderOptions options;
            options.sampling = {.seed = seed,
                                .shuffling = named(kShufflings, shuffle, "shuffle"),
                                .streams = streams,
                                .open_blocks = open_blocks,
                                .ranks = ranks,
                                .batch_per_rank = batch_size,
                                .remainder = drop_last ? data::Remainder::kDrop : data::Remainder::kPad};
            options.rank = rank;
            options.threads = threads;
            options.memory_budget_bytes = memory_budget;
            options.prefetch_batches = prefetch;
            options.replace_damaged = replace_damaged;
            const data::SampleOptions samples{.format = named(kFormats, format, "format"),
                                              .records_per_file = records_per_file,
                                              .threads = threads,
                                              .pyarrow_folder = pyarrow_folder,
                                              .classes = std::move(classes)};
            new (self) DataLoader(places, to_paths(files), samples, fields, options);
          },
          nb::arg("files"), nb::kw_only(), nb::arg("places"), nb::arg("format"), nb::arg("records_per_file"),
          nb::arg("fields"), nb::arg("batch_size"), nb::arg("shuffle"), nb::arg("seed"), nb::arg("drop_last"),
          nb::arg("streams") = 1, nb::arg("open_blocks") = 0, nb::arg("rank"), nb::arg("ranks"), nb::arg("threads"),
          nb::arg("memory_budget"), nb::arg("prefetch"), nb::arg("replace_damaged"), nb::arg("pyarrow_folder") = "",
          nb::arg("classes") = std::vector<std::string>())
      .def_prop_ro("count", &DataLoader::count, "Samples of the set.")
      .def_prop_ro("advice", &DataLoader::advice, "What the shuffle costs, where that is much; else empty.")
      .def_prop_ro("files_checksum", &DataLoader::files_checksum, "Equal for two loaders of the same samples.")
      .def_prop_ro("steps", [](DataLoader& self) { return self.loader().steps(); })
      .def_prop_ro(
          "open_blocks", [](DataLoader& self) { return self.loader().sampling().open_blocks; },
          "How many blocks each stream mixes; with another shuffle what was given.")
      .def_prop_ro("memory_bytes", [](DataLoader& self) { return self.loader().memory_bytes(); })
      .def(
          "start_epoch",
          [](DataLoader& self, std::uint64_t epoch, std::uint64_t step) {
            const nb::gil_scoped_release released;
            self.loader().start_epoch(epoch, step);
          },
          nb::arg("epoch"), nb::arg("step") = 0)
      .def("next", &DataLoader::next,
           "(fields, step, samples in the batch, those that count, and over all ranks), or None at the end of the "
           "epoch.")
      .def("add_wait_to_timeline", &DataLoader::add_wait_to_timeline, nb::arg("runtime"), nb::arg("row"),
           "Shows the wait for the last batch in the job's timeline, where that runs.")
      .def("add_wait_to_timeline", &DataLoader::add_wait_to, nb::arg("timeline"), nb::arg("row"))
      .def("ledger", [](DataLoader& self) { return to_dict(self.loader().ledger()); });
  module.def("encode_example", &encode_example, nb::arg("features"));
  module.def("synthetic_image", &make_image, nb::arg("seed"), nb::arg("classes"), nb::arg("size"), nb::arg("stream"),
             nb::arg("index"));
  module.def("usable_cores", &usable_cores);
  module.def("write_tfrecords", &write_records, nb::arg("path"), nb::arg("records"), nb::arg("compression") = "",
             nb::arg("level") = 6);
}

}  // namespace gyre::python

#include "gyre/data/formats/pickle_subset.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "gyre/base/error.h"

namespace gyre::data {
namespace {

using Kind = PickleObject::Kind;

/// Stands on the stack for "everything above belongs to the next collection". Never an index of an object.
constexpr std::uint32_t kMark = std::numeric_limits<std::uint32_t>::max();

/// The longest name of a module or class that is read.
constexpr std::size_t kMostNameBytes = 256;

class PickleParser {
 public:
  PickleParser(std::span<const std::byte> bytes, std::string_view name)
      : name_(name), whole_(as_text(bytes)), reader_(bytes, name) {}

  PickleDocument parse() {
    while (!step()) {
    }
    return std::move(document_);
  }

 private:
  bool step();
  bool scalar_opcode();
  bool string_opcode();
  bool collection_opcode();
  bool memo_opcode();

  void push(PickleObject object);
  void push_text(Kind kind, std::string_view text) { push({.kind = kind, .text = text}); }
  void push_integer(std::int64_t value) { push({.kind = Kind::kInteger, .integer = value}); }
  void push_tuple(std::size_t count);
  std::uint32_t pop();
  PickleObject pop_object() { return document_.objects[pop()]; }
  std::vector<std::uint32_t> pop_to_mark();
  PickleObject& top(Kind kind);
  void append(const std::vector<std::uint32_t>& items);
  void set_items(const std::vector<std::uint32_t>& items);
  void remember(std::uint32_t key);
  void recall(std::uint32_t key);

  void global();
  void reduce();
  PickleObject decode_latin1(const PickleObject& text);
  void build();
  void check_dtype_state(const PickleObject& state) const;
  void build_array(PickleObject& array, const PickleObject& state);

  const PickleObject& item(const PickleObject& tuple, std::size_t index) const {
    return document_.objects[tuple.items[index]];
  }
  bool is_text(const PickleObject& object, std::string_view text) const {
    return (object.kind == Kind::kText || object.kind == Kind::kBytes) && object.text == text;
  }
  bool is_integer(const PickleObject& object, std::int64_t value) const {
    return (object.kind == Kind::kInteger || object.kind == Kind::kBool) && object.integer == value;
  }
  std::string_view line();

  [[noreturn]] void fail(std::string_view why, ErrorCode code = ErrorCode::kCorruptData) const;

  std::string name_;
  std::string_view whole_;
  ByteReader reader_;
  std::size_t opcode_offset_ = 0;
  std::uint8_t opcode_ = 0;
  std::size_t decoded_bytes_ = 0;
  PickleDocument document_;
  std::vector<std::uint32_t> stack_;
  std::vector<std::uint32_t> memo_;  // kMark where nothing was remembered.
};

void PickleParser::fail(std::string_view why, ErrorCode code) const {
  const bool printable = opcode_ > 0x20 && opcode_ < 0x7f;
  throw Error(code,
              fmt::format("{}: not a pickle that Gyre reads: {} (opcode 0x{:02x}{} at offset {})", name_, why, opcode_,
                          printable ? fmt::format(" '{}'", static_cast<char>(opcode_)) : "", opcode_offset_));
}

/// One opcode. True at the end of the pickle.
bool PickleParser::step() {
  opcode_offset_ = reader_.offset();
  opcode_ = reader_.u8();
  if (opcode_ == '.') {
    if (stack_.size() != 1 || stack_.back() == kMark) fail("it ends with something other than one object");
    document_.root = stack_.back();
    return true;
  }
  if (scalar_opcode() || string_opcode() || collection_opcode() || memo_opcode()) return false;
  fail("this opcode does not occur in CIFAR-10's files; nothing else is interpreted", ErrorCode::kUnsupported);
}

bool PickleParser::scalar_opcode() {
  switch (opcode_) {
    case 0x80:  // PROTO
      if (const auto version = reader_.u8(); version > 2) {
        fail(fmt::format("protocol {} is not supported; write it with pickle.dump(..., protocol=2)", version),
             ErrorCode::kUnsupported);
      }
      return true;
    case 'N': push({}); return true;
    case 0x88: push({.kind = Kind::kBool, .integer = 1}); return true;
    case 0x89: push({.kind = Kind::kBool, .integer = 0}); return true;
    case 'J': push_integer(static_cast<std::int32_t>(reader_.u32())); return true;  // BININT
    case 'K': push_integer(reader_.u8()); return true;                              // BININT1
    case 'M': push_integer(reader_.u16()); return true;                             // BININT2
    default: return false;
  }
}

bool PickleParser::string_opcode() {
  switch (opcode_) {
    case 'T': push_text(Kind::kBytes, reader_.text(reader_.u32())); return true;  // BINSTRING
    case 'U': push_text(Kind::kBytes, reader_.text(reader_.u8())); return true;   // SHORT_BINSTRING
    case 'X': push_text(Kind::kText, reader_.text(reader_.u32())); return true;   // BINUNICODE
    case 'c': global(); return true;
    case 'R': reduce(); return true;
    case 'b': build(); return true;
    default: return false;
  }
}

bool PickleParser::collection_opcode() {
  switch (opcode_) {
    case '(': stack_.push_back(kMark); return true;
    case ')': push({.kind = Kind::kTuple}); return true;
    case ']': push({.kind = Kind::kList}); return true;
    case '}': push({.kind = Kind::kDict}); return true;
    case 't': {
      auto items = pop_to_mark();
      push({.kind = Kind::kTuple, .items = std::move(items)});
      return true;
    }
    case 0x85:  // TUPLE1
    case 0x86:
    case 0x87: push_tuple(opcode_ - 0x84U); return true;
    case 'a': append({pop()}); return true;
    case 'e': append(pop_to_mark()); return true;
    case 's': {
      const std::uint32_t value = pop();
      const std::uint32_t key = pop();
      set_items({key, value});
      return true;
    }
    case 'u': set_items(pop_to_mark()); return true;
    default: return false;
  }
}

bool PickleParser::memo_opcode() {
  switch (opcode_) {
    case 'q': remember(reader_.u8()); return true;   // BINPUT
    case 'r': remember(reader_.u32()); return true;  // LONG_BINPUT
    case 'h': recall(reader_.u8()); return true;     // BINGET
    case 'j': recall(reader_.u32()); return true;    // LONG_BINGET
    default: return false;
  }
}

void PickleParser::push(PickleObject object) {
  if (document_.objects.size() >= kMostPickleObjects) {
    fail(fmt::format("it holds more than {} objects", kMostPickleObjects), ErrorCode::kResourceExhausted);
  }
  stack_.push_back(static_cast<std::uint32_t>(document_.objects.size()));
  document_.objects.push_back(std::move(object));
}

void PickleParser::push_tuple(std::size_t count) {
  std::vector<std::uint32_t> items(count);
  for (std::size_t i = count; i > 0; --i) items[i - 1] = pop();
  push({.kind = Kind::kTuple, .items = std::move(items)});
}

std::uint32_t PickleParser::pop() {
  if (stack_.empty() || stack_.back() == kMark) fail("an object is needed and the stack has none");
  const std::uint32_t object = stack_.back();
  stack_.pop_back();
  return object;
}

std::vector<std::uint32_t> PickleParser::pop_to_mark() {
  std::size_t mark = stack_.size();
  while (mark > 0 && stack_[mark - 1] != kMark) --mark;
  if (mark == 0) fail("a mark is needed and the stack has none");
  std::vector<std::uint32_t> items(stack_.begin() + static_cast<std::ptrdiff_t>(mark), stack_.end());
  stack_.resize(mark - 1);
  return items;
}

PickleObject& PickleParser::top(Kind kind) {
  if (stack_.empty() || stack_.back() == kMark) fail("a collection is needed and the stack has none");
  PickleObject& object = document_.objects[stack_.back()];
  if (object.kind != kind) fail("the object to fill is not of the kind that this opcode fills");
  return object;
}

void PickleParser::append(const std::vector<std::uint32_t>& items) {
  auto& list = top(Kind::kList).items;
  list.insert(list.end(), items.begin(), items.end());
}

void PickleParser::set_items(const std::vector<std::uint32_t>& items) {
  if (items.size() % 2 != 0) fail("a key without a value");
  auto& dict = top(Kind::kDict).items;
  dict.insert(dict.end(), items.begin(), items.end());
}

void PickleParser::remember(std::uint32_t key) {
  if (stack_.empty() || stack_.back() == kMark) fail("there is no object to remember");
  // Python numbers the memo 0, 1, 2, …: a key far beyond the opcodes read so far is damage.
  if (key > reader_.offset() || key >= kMostPickleObjects) fail(fmt::format("the memo has no place {}", key));
  if (key >= memo_.size()) memo_.resize(key + std::size_t{1}, kMark);
  memo_[key] = stack_.back();
}

void PickleParser::recall(std::uint32_t key) {
  if (key >= memo_.size() || memo_[key] == kMark) fail(fmt::format("nothing was remembered at place {}", key));
  stack_.push_back(memo_[key]);
}

std::string_view PickleParser::line() {
  const std::size_t start = reader_.offset();
  while (reader_.u8() != '\n') {
    if (reader_.offset() - start > kMostNameBytes) fail("a name is too long");
  }
  const std::size_t length = reader_.offset() - start - 1;
  return whole_.substr(start, length);
}

/// "module\nname\n": kept as "module name". Whether the name is known is asked when it is called.
void PickleParser::global() {
  const std::string_view module = line();
  const std::string_view name = line();
  const std::string_view both =
      whole_.substr(static_cast<std::size_t>(module.data() - whole_.data()), module.size() + 1 + name.size());
  push_text(Kind::kGlobal, both);
}

/// A call. The four that build a uint8 array or bytes are interpreted; no other exists.
void PickleParser::reduce() {
  const PickleObject arguments = pop_object();
  const PickleObject callable = pop_object();
  if (callable.kind != Kind::kGlobal || arguments.kind != Kind::kTuple) fail("a call of something that is no function");
  const std::string_view name = callable.text;
  const std::size_t count = arguments.items.size();
  if (name == "numpy.core.multiarray\n_reconstruct" || name == "numpy._core.multiarray\n_reconstruct") {
    if (count != 3 || item(arguments, 0).text != "numpy\nndarray") fail("an array that is not a plain numpy.ndarray");
    return push({.kind = Kind::kArray});
  }
  if (name == "numpy\ndtype") {
    const bool plain = count == 3 && is_text(item(arguments, 0), "u1") && is_integer(item(arguments, 1), 0) &&
                       is_integer(item(arguments, 2), 1);
    if (!plain) fail("an array whose type is not uint8", ErrorCode::kUnsupported);
    return push({.kind = Kind::kDtype});
  }
  if (name == "_codecs\nencode") {
    const bool latin1 = count == 2 && item(arguments, 0).kind == Kind::kText && is_text(item(arguments, 1), "latin1");
    if (!latin1) fail("an encoding other than latin1", ErrorCode::kUnsupported);
    return push(decode_latin1(item(arguments, 0)));
  }
  if (name == "__builtin__\nbytes" && count == 0) return push_text(Kind::kBytes, {});
  std::string shown(name.substr(0, kMostNameBytes));
  for (char& letter : shown) letter = letter == '\n' ? '.' : letter;
  fail(fmt::format("it wants to call {}, and nothing is executed from a data file", shown), ErrorCode::kUnsupported);
}

/// Python 3 stores bytes in protocol 2 as text whose code points 0-255 are the bytes; in UTF-8 those are one or two
/// bytes long.
PickleObject PickleParser::decode_latin1(const PickleObject& text) {
  decoded_bytes_ += text.text.size();
  // Without sharing, what is decoded was stored in this file once, so more than the file is an attack on memory.
  if (decoded_bytes_ > whole_.size()) fail("it decodes one text again and again", ErrorCode::kResourceExhausted);
  Bytes result;
  result.reserve(text.text.size());
  for (std::size_t i = 0; i < text.text.size(); ++i) {
    const auto first = static_cast<std::uint8_t>(text.text[i]);
    if (first < 0x80) {
      result.push_back(static_cast<std::byte>(first));
      continue;
    }
    const bool two = (first == 0xc2 || first == 0xc3) && i + 1 < text.text.size();
    const auto second = two ? static_cast<std::uint8_t>(text.text[++i]) : std::uint8_t{0};
    if (!two || (second & 0xc0) != 0x80) fail("bytes stored as text that is not Latin-1");
    result.push_back(static_cast<std::byte>(((first & 0x03) << 6) | (second & 0x3f)));
  }
  document_.decoded.push_back(std::move(result));
  return {.kind = Kind::kBytes, .text = as_text(document_.decoded.back())};
}

/// Gives an array or a dtype its state.
void PickleParser::build() {
  const PickleObject state = pop_object();
  if (state.kind != Kind::kTuple) fail("a state that is no tuple");
  if (stack_.empty() || stack_.back() == kMark) fail("a state without an object");
  PickleObject& object = document_.objects[stack_.back()];
  if (object.kind == Kind::kDtype) return check_dtype_state(state);
  if (object.kind == Kind::kArray) return build_array(object, state);
  fail("a state for something that is neither an array nor its type");
}

/// (3, '|', None, None, None, -1, -1, 0): a plain type without fields, without byte order.
void PickleParser::check_dtype_state(const PickleObject& state) const {
  bool plain = state.items.size() == 8 && is_text(item(state, 1), "|");
  for (std::size_t i = 2; plain && i < 5; ++i) plain = item(state, i).kind == Kind::kNone;
  if (!plain) fail("an array type that is not plain uint8", ErrorCode::kUnsupported);
}

/// (version, shape, dtype, is it in Fortran's order, the bytes).
void PickleParser::build_array(PickleObject& array, const PickleObject& state) {
  if (state.items.size() != 5 || !is_integer(item(state, 0), 1)) fail("an array state of an unknown version");
  const PickleObject& shape = item(state, 1);
  if (shape.kind != Kind::kTuple || shape.items.size() > 8) fail("an array without a sensible shape");
  if (item(state, 2).kind != Kind::kDtype) fail("an array without a type");
  if (!is_integer(item(state, 3), 0)) fail("an array in Fortran's order", ErrorCode::kUnsupported);
  const PickleObject& content = item(state, 4);
  if (content.kind != Kind::kBytes) fail("an array without its bytes");
  std::vector<std::uint64_t> sizes;
  std::uint64_t elements = 1;
  for (const std::uint32_t index : shape.items) {
    const PickleObject& size = document_.objects[index];
    if (size.kind != Kind::kInteger || size.integer < 0) fail("an array size that is no number");
    sizes.push_back(static_cast<std::uint64_t>(size.integer));
    // Sizes are below 2^31, so this product cannot overflow while it stays within the file.
    elements *= sizes.back();
    if (elements > whole_.size()) fail("an array larger than its file");
  }
  if (elements != content.text.size()) {
    fail(fmt::format("an array of {} elements with {} bytes", elements, content.text.size()));
  }
  array.shape = std::move(sizes);
  array.text = content.text;
}

}  // namespace

const PickleObject* PickleDocument::find(const PickleObject& dict, std::string_view key) const {
  if (dict.kind != Kind::kDict) return nullptr;
  for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickleObject& candidate = objects[dict.items[i]];
    const bool is_name = candidate.kind == Kind::kText || candidate.kind == Kind::kBytes;
    if (is_name && candidate.text == key) return &objects[dict.items[i + 1]];
  }
  return nullptr;
}

PickleDocument parse_pickle(std::span<const std::byte> bytes, std::string_view name) {
  return PickleParser(bytes, name).parse();
}

}  // namespace gyre::data

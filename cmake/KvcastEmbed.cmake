# cmake -DINPUT=FILE -DOUTPUT=FILE.cc -DNAME=kName -P KvcastEmbed.cmake: writes the bytes of a file as an array.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "(................................................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "namespace kvcast::cuda {
extern const unsigned char ${NAME}[];
// Aligned, because a driver reads whole words of the array.
alignas(64) const unsigned char ${NAME}[] = {
${bytes}};
}  // namespace kvcast::cuda
")

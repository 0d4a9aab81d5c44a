# cmake -DINPUT=FILE -DOUTPUT=FILE.cc -DNAME=kName -P embed.cmake: the bytes of a file as an array.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "(................................................................)" "\\1\n" bytes "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT} "namespace kvcast::cuda {
extern const unsigned char ${NAME}[];
// A driver reads whole words of it.
alignas(64) const unsigned char ${NAME}[] = {
${bytes}};
}  // namespace kvcast::cuda
")

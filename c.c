
#include <stdio.h>
#include <stdint.h>
int main(){const char*al="abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
uint32_t n=0;char s[7]={0};
for(uint64_t i=0;i<(1ull<<36)&&n<40000;i++){uint32_t h=2166136261u;for(int k=0;k<6;k++){s[k]=al[(i>>(6*k))&63];h=(h^(uint8_t)s[k])*16777619u;}
 if((h&0x1ffff)==5){puts(s);n++;}}}
